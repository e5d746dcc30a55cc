"""Measurements of many runs: plan, key, resume, and drive into a sink.

The command line, the agent and the benchmarks share them: a command parses and prints, the agent
has a budget and reports. The key of a campaign is a hash of its settings, so that the same
settings find it again, whoever asks; ``campaign.steps_done`` alone decides what is left.

Where records go is a ``Sink``. A store is one; the agent's is its spool. A spool forgets what it
has delivered, so the agent also keeps the records of unfinished campaigns in a journal, a file for
each key (``journal``). ``kongming profile --journal DIR`` reads and writes the same files: then a
campaign that one of the two began is resumed by the other, which takes the records over. Without
a journal a store knows only its own campaigns: two stores are two series of measurements.

Nothing is imported here: the agent loads the modules without a store, the command line all.
"""
