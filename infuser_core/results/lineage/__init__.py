"""Lineage: explain any number, artifact or question by its origin and by what depends on it (`infuser why`)."""
