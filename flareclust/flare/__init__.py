"""What runs inside NVFlare's processes or talks to its server: controller, filters, sessions, guards."""
