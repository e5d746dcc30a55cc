"""Files that are read and written with care: whole or not at all, sealed, within limits, by row."""
