"""Answers about runtimes from a state in memory: pure, without files or sockets."""
