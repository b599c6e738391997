"""Generator rewards: one module per reward; the folder is the registry."""
