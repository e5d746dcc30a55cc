"""`kongming explore`: choose the deployments to run, and model all the others."""
