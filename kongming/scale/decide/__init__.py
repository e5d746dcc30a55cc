"""Decisions from scale models: how many machines, which nodes, which to drop."""
