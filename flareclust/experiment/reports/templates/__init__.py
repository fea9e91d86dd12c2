"""Templates of HTML pages."""
