"""The agent, one on every node: it measures, spools and reports."""
