#!/bin/sh
# blast_new.sh DIR BASES READS: a random genome as a database, and reads of it with errors.
set -eu
here=$(dirname "$0")
"$here/python" "$here/make.py" genome "$1" "$2" "$3"
awk 'NR % 4 == 1 { print ">" substr($0, 2) } NR % 4 == 2' "$1/reads.fq" >"$1/reads.fa"
makeblastdb -dbtype nucl -in "$1/genome.fa" -out "$1/genome" >/dev/null
