"""Observations of machines over time: their files, their analysis and reports.

Nothing here measures: readings come from files that ``kongming observe`` wrote.
"""
