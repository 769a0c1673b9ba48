"""The arithmetic of the storage plan."""
