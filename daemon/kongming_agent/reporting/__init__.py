"""Delivery to the server: the spool, the link, local reports of runs, and metrics."""
