"""When and what to probe, the probes themselves, and passive signals."""
