"""The ``kongming`` command: one file a noun; each parses, calls the library and prints."""
