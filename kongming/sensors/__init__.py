"""Load sensors: figures of nodes in the format that each of other schedulers and monitors reads,
without I/O.

What is not known is left out of a document: to those who read them, 0 would be an idle node.
"""
