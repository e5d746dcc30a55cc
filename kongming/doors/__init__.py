"""Formats that others expect to read, made of KONGMING's records: one file for each of them,
without I/O.

What is not known is left out of a document: to those who read them, 0 would be an idle node.
"""
