"""Benchmarks: `python -m benchmarks.NAME` in the clone."""
