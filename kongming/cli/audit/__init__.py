"""``kongming audit``: reports and comparisons of observations."""
