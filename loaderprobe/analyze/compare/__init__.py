"""From two results to what changed between them."""
