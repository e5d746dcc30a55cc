"""From the event log of one Spark run: how long on any number of executors, and what limits it."""
