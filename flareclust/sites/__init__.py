"""A site's own files: configuration, policy, permissions of its kit, account of privacy; and their check."""

__all__ = [
    "account",
    "check",
    "class_list",
    "cluster",
    "config",
    "held_rows",
    "job_log",
    "job_settings",
    "kit",
    "part_rows",
    "permissions",
    "policy_file",
    "rows",
    "running",
    "withdrawn",
]
