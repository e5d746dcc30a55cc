"""Commands that move measurements between stores."""
