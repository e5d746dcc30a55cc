"""Observations of machines over time: what they are kept in, and what they say of the machines.

Nothing here measures: readings come from files that ``kongming observe`` wrote.
"""
