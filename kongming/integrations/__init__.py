"""Integrations with other tools: schedulers of tasks, benchmark runners. One module a framework."""
