"""Measurements of many runs: plan, key, resume, and drive into a sink.

The command line, the agent and the benchmarks share them: a command parses and prints, the agent
has a budget and reports. The key of a campaign is a hash of its settings, so that the same settings
find it again. Only ``campaign.steps_done`` decides which steps remain.

Records go to a ``Sink``: a store, or the spool of the agent. A spool drops delivered records, so
the agent also keeps the records of unfinished campaigns in a journal, a file for each key
(``journal``). ``kongming profile --journal DIR`` reads and writes the same files: then either of
the two resumes a campaign of the other, with its records. Without a journal a store knows only its
own campaigns.

This module imports nothing: the agent loads only the modules that need no store.
"""
