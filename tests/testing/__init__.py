"""Fakes and plants."""
