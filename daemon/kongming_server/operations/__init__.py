"""Long-running operations and the tasks that they consist of."""
