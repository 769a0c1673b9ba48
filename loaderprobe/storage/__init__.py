"""What storage can deliver to a loader: whole files, at random, with more and more readers."""
