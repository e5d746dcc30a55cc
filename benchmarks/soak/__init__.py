"""What is left after programs were killed at random moments, again and again."""
