"""Metrics of the server, and loads of nodes for those who monitor them."""
