"""Reports of runs: SQL queries over a run's views become tables and figures in Markdown and in one HTML page."""
