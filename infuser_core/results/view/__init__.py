"""Local web pages over the store: runs, curves, questions and their explanations."""
