"""Calls over gRPC on their way in and out: bounds, headers, errors."""
