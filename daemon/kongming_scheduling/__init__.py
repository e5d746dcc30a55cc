"""Shared parts of the scheduler integrations: client of the server, ranking cache, log throttle."""
