"""Comparisons: statistics, words, gates."""
