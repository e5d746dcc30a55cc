"""``kongming simulate``: a trace of jobs under several placement policies."""
