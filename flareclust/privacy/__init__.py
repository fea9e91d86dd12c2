"""What leaves a site: policies, enforcement, differential privacy, secure aggregation."""
