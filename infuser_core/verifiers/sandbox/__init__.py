"""Sandbox that runs untrusted programs; independent of benchmarks."""
