"""What storage delivers to a loader: whole files, in random order, at rising concurrency."""
