"""Runtime on any number of executors, and what limits it, from the event log of one Spark run."""
