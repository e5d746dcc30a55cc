"""Run surrogates on a node and read the node's passive signals.

Imports only the standard library, to keep the measuring process small.
"""
