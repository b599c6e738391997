"""Trackers: one module per place that a run's numbers are shown in; the folder is the registry."""
