"""The wire: codec, client, channel and errors."""

from kongming.processes.standard_streams import keep_for_us

# For who imports this without one of our programs.
keep_for_us()
