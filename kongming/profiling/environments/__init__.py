"""Different environments on one machine: resource limits and unseen neighbours."""
