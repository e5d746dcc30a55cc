"""Settings of the server: what they are, and how they are read."""
