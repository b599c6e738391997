"""r(a, b; q): one module per way of comparing a response with a reference answer; the folder is the registry."""
