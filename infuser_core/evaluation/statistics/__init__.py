"""Statistics of evaluations: plain numbers in, plain numbers out; no store, no engine."""
