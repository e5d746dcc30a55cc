"""Scale models: the runtime of a job as a function of its input and its machines (Ernest)."""
