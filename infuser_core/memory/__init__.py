"""Bytes of models on hardware, and the sizes of tiles and batches: read by engines and by the planner; no torch."""
