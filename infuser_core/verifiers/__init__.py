"""Verifiers, the paper's r(a, b; q): one module per way to compare a response with a reference, found by file name."""
