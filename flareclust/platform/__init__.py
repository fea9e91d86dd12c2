"""What runs inside NVFlare's processes or talks to its server: controller, receiver, peers, sessions."""

__all__ = ["controller", "job_monitor", "peers", "receiver", "session"]
