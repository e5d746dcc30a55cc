"""Corrections of constant lengths: each learns from the log, and can be switched off."""
