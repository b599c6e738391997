"""Plan runs before they start: stages to run, forks, sweeps, memory, disk, hours, and preflight checks."""
