"""Parts of trackers: numbers of stages, the run's log and metrics, the process that a tracker runs in."""
