"""What the server does with the sites' replies: one file per algorithm, plus `base` and `controller`."""
