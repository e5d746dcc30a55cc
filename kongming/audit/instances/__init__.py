"""Accuracy on recorded instances: runs predicted on machines that no model was trained on."""
