"""``kongming-server`` and its commands."""
