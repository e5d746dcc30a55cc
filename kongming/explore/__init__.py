"""Adaptive profiling: which few deployments to run, and a model of all the others."""
