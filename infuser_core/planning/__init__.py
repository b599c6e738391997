"""What a run would do before it does it: places in the pipeline, forced work, forks, and plans with their reasons."""
