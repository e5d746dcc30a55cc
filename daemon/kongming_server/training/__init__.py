"""Training as operations, in worker processes beside the serving one."""
