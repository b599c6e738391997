"""Routes from a document to a question: one module per route; the folder is the registry."""
