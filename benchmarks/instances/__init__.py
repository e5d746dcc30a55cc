"""Real machines that the project has been run on, and single-task accuracy over them."""
