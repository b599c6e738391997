"""Scores that studies compare: one module per score; the folder is the registry."""
