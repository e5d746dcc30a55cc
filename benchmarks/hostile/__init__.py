"""What callers that mean harm cost the others."""
