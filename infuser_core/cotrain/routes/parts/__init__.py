"""Parts that several routes share."""
