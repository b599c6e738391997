"""Copies of a store in another place that fsspec reaches: an object store, another machine, another folder."""
