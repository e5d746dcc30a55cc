"""``kongming evaluate``: predictions compared with measured runtimes."""
