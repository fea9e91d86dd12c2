"""What leaves a site: policies, enforcement, differential privacy, secure aggregation."""

__all__ = [
    "dp",
    "enforcement",
    "job_folder",
    "job_sums",
    "policy",
    "saturation",
    "secure_aggregation",
    "session",
    "stages",
]
