"""Placing for programs that bring a scheduler of their own: one module a framework."""
