"""What a run will cost before it starts: memory, seconds, bytes and GPU-hours, from counted work and six constants."""
