"""Ranking of nodes for a placement: scores, refusals, harm to residents, and sets of nodes."""
