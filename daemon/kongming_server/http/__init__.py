"""HTTP in addition to gRPC: metrics, health, and Predict and RankNodes as JSON."""

from kongming_server.http.app import make_http

__all__ = ["make_http"]
