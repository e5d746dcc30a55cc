"""Schedule of probes, the probes themselves, and passive signals."""
