"""Micro-worlds: a file each, with its world and the schedule that its anchor is trained by."""
