"""All that is NVFlare's: its processes and ours in them, jobs, kits, provisioning, POC, simulator, sessions."""

__all__ = [
    "backup",
    "controller",
    "file_guard",
    "filters",
    "job",
    "job_monitor",
    "kit",
    "log_streaming",
    "peers",
    "poc",
    "process_tree",
    "provision",
    "provisioned",
    "receiver",
    "recipe",
    "scratch",
    "session",
    "simulator",
    "simulator_watch",
    "status",
]
