"""A real PostgreSQL on loopback for the tests."""
