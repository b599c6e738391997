"""Parts that phases share: few-shot examples, groups that are not finite, and warnings about a run."""
