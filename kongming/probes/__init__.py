"""Runs surrogates on a node and reads the node's own signals.

Imports nothing outside the standard library: what measures must not disturb.
"""
