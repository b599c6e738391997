"""Shared parts of trackers: metrics of stages, the run's log, and the processes that trackers run in."""
