"""Micro-worlds: one file each, with its world and the training schedule of its anchor."""
