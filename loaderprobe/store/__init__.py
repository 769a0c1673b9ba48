"""Records to and from JSON, and the run directory that keeps them."""
