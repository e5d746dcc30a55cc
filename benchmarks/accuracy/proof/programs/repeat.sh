#!/bin/sh
# repeat.sh TIMES COMMAND ...: the command so many times, one after the other.
set -eu
times=$1
shift
while [ "$times" -gt 0 ]; do
    "$@" >/dev/null
    times=$((times - 1))
done
