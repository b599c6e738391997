"""Forecast of a run's cost before it starts: memory, seconds, bytes and GPU-hours, from counted work."""
