"""Choose which experiments to run (Ernest, section 3.2), and in which order."""
