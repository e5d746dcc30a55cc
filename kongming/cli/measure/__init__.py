"""Commands that measure this node."""
