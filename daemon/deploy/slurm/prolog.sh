#!/bin/sh
# Slurm's Prolog: tells this node's agent that a job has started, where the job names its application.
# Runs as root before the job; it never fails, and gives up after two seconds.
command=/usr/bin/kongming-slurm
config=/etc/kongming/slurm.toml

case "${SLURM_JOB_COMMENT:-}" in
*kongming:*) timeout --kill-after=0.1 2 "$command" prolog --config "$config" ;;
esac
exit 0
