"""What runs inside NVFlare's processes or talks to its server: controller, receiver, peers, sessions."""
