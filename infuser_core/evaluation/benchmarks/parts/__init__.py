"""Code that benchmarks share: their description, readers of data files, the validation sample."""
