"""What a site computes and sends: one file per algorithm, plus `base`."""
