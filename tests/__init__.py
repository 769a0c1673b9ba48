"""The tests, room by room as the package."""
