"""Makes the process of a server's job malicious. Python imports this module by itself where its folder is on PYTHONPATH."""

import sys

if "nvflare.private.fed.app.server.runner_process" in sys.orig_argv:
    from benchmarks.attacks import malicious_server

    malicious_server.take_over()
