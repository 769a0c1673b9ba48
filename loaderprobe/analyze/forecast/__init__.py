"""Forecasts of changes, the knee of the worker counts, and advice made of both."""
