"""Agents' reports: decoded, checked, and written to the store."""
