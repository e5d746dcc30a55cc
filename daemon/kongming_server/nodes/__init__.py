"""Nodes and their agents: registry, ownership, requests to profile."""
