"""A DataLoader of the user's own."""
