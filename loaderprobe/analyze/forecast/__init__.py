"""Forecasts of changes, the knee of the worker counts, and advice made of both.

What was measured is judged in `verdict/`; a plan for other machines is in `plan/`.
"""
