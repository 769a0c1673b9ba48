"""Benchmarks, each run by `scripts/bench NAME`: the modules that have a `main`; what they measure stands beside."""
