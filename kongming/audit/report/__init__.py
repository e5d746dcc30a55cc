"""The report of an audit: one HTML page and CSV tables."""
