"""All that is NVFlare's: its processes and ours in them, jobs, kits, provisioning, POC, simulator, sessions."""

__all__ = [
    "admission",
    "controller",
    "job",
    "job_monitor",
    "log_streaming",
    "peers",
    "poc",
    "process_tree",
    "provisioned",
    "receiver",
    "recipe",
    "scratch",
    "session",
    "simulator",
    "simulator_watch",
]
