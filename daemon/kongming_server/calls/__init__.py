"""Calls over gRPC: how each is let in, decoded, answered and ended."""
