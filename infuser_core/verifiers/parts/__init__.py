"""Parts that verifiers share: extraction, findings, grading facts, comparison, worker processes."""
