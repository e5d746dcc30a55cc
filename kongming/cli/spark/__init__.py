"""`kongming spark`: what the event log of one run tells of any other number of executors."""
