"""Commands that profile applications and show what was run."""
