"""KONGMING for Slurm: rankings for job_submit.lua, weights, pending jobs, prolog and epilog."""
