#!/bin/sh
# genome.sh DIR BASES READS: a random genome with its index, and reads of it with errors.
set -eu
here=$(dirname "$0")
"$here/python" "$here/make.py" genome "$1" "$2" "$3"
bwa index "$1/genome.fa" 2>/dev/null
