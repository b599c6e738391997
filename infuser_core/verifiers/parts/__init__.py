"""Code that verifiers share: answer extraction, verdicts, grading facts, comparison, worker processes."""
