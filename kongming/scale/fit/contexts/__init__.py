"""One model over contexts: parameters and machine types of a job besides its scale."""
