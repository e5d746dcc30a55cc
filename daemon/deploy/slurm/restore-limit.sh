#!/bin/sh
# Slurm's PrologSlurmctld: gives a job that backfill has started with a lowered time limit its user's
# limit back, before the job begins. Runs as SlurmUser on the controller for each job; it never fails,
# never lowers a limit, and gives up after ten seconds.
: "${SLURM_CONF:=/etc/slurm/slurm.conf}"
export SLURM_CONF
LC_ALL=C
export LC_ALL

job=${SLURM_JOB_ID:-}
[ -n "$job" ] || exit 0
# The first id of an array is that of all its tasks.
[ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID

# None of these fields holds a user's text. Prints the minutes of the user's limit, as job_submit.lua
# has noted them, where the job has a --time-min and a limit below that.
minutes=$(timeout 5 squeue -h -a -j "$job" -O "TimeLimit:|,MinTime:|,admin_comment:" | awk -F '|' '
	function minutes(text, parts, count, days) {
		if (text !~ /^([0-9]+-)?([0-9]+:)+[0-9][0-9]$/)
			return 0
		if (split(text, parts, "-") == 2) { days = parts[1]; text = parts[2] }
		count = split(text, parts, ":")
		return days * 1440 + (count > 2 ? parts[count - 2] * 60 : 0) + parts[count - 1] + \
			(parts[count] > 0)
	}
	NR == 1 && minutes($2) > 0 && match($0, /,time=[0-9]+,own=/) {
		wanted = substr($0, RSTART + 6) + 0
		if (minutes($1) > 0 && minutes($1) < wanted)
			print wanted
	}')
[ -z "$minutes" ] ||
	timeout 5 scontrol update JobId="$job" TimeLimit="$minutes" ||
	echo "kongming: the time limit of job $job could not be restored" >&2
exit 0
