"""A scheduler extender for Kubernetes: nodes filtered and ranked by what is predicted for them."""
