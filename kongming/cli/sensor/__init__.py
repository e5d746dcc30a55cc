"""One file for each batch system that reads it."""
