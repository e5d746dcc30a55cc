#!/bin/sh
# backup.sh DIR MEBIBYTES: a tree to back up.
set -eu
here=$(dirname "$0")
"$here/python" "$here/make.py" tree "$1/tree" "$2"
