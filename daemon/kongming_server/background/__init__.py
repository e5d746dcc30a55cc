"""Work of the server that no call waits for, and what guards it."""
