"""Paths of pages on the server of `infuser serve`."""

UI = "/v2"
"""Prefect's UI."""
PAGES = f"{UI}/artifacts/key"
"""Pages of artifacts in Prefect's UI: each path, with a key, leads to the newest page of that key."""
VIEW = "/view"
"""Leads to the same path of the viewer, from pages that Prefect stores."""
