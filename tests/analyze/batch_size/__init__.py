"""Searches for the fastest setting."""
