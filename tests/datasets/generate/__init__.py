"""The generator."""
