"""Data sets as they are found: folders of one's own, and generated sets read back."""
