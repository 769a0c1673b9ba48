"""Loaders of other libraries; run by scripts/bench libraries."""
