"""A training script that is measured from inside, or only watched."""
