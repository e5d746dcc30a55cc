"""Processes of ours: how they begin and end, their streams and signals, and pools of them."""
