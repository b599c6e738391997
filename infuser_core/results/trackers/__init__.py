"""Trackers: one module per service or file format that shows a run's numbers; the folder is the registry."""
