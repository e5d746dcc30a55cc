"""The agent: one on every node. It measures, keeps and reports."""
