"""Doors into other tools: schedulers of tasks, benchmark runners. One module a framework."""
