"""Commands that train models and predict."""
