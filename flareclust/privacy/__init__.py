"""What leaves a site: the policies that sites impose, differential privacy, sums that only their total tells."""
