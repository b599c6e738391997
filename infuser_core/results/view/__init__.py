"""Local web page over the store: runs, curves, questions and the story of each question."""
