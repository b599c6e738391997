"""Statistics of evaluations, computed from plain numbers; independent of store and engines."""
