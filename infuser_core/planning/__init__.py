"""Plans of runs: places in the pipeline, forced work, forks, and plans with their reasons."""
