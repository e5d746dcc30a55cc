"""The blocks of a plan: what is measured under one load, or of one program."""
