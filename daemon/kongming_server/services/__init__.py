"""The gRPC services: each translates messages to questions and answers back."""
