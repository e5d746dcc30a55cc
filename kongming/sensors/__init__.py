"""What other schedulers and monitors read of nodes, in the format of each: load sensors, without
I/O.

What is not known is left out of a document: to those who read them, 0 would be an idle node.
"""
