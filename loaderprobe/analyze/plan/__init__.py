"""The arithmetic of the storage plan: pure functions on figures with labels."""
