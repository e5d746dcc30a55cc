"""Training as operations, in worker processes of their own."""
