"""Fit scale models to tables of runs (Ernest, NSDI 2016, section 3)."""
