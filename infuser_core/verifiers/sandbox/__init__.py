"""Runs untrusted code; knows nothing of benchmarks."""
