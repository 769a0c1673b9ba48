"""The tests, in the folders of the package."""
