"""Lineage: the origin of every number, and what depends on it."""
