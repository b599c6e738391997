"""Experiment trackers: one module per service or file format that shows a run's numbers, found by file name."""
