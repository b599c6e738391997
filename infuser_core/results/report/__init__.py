"""SQL over a run's views to tables, figures, one Markdown file and one self-contained page."""
