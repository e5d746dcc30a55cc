"""Timed executions of applications, alone or co-located with a load."""
