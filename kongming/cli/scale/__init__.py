"""``kongming scale``: one file for each subcommand."""
