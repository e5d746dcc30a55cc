#!/bin/sh
# repository.sh DIR COMMITS: a repository whose files change a little with each commit.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
export GIT_AUTHOR_DATE='2026-01-01T00:00:00Z' GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
export GIT_CONFIG_GLOBAL=/dev/null
"$here/python" "$here/make.py" history "$1/stream" "$2"
rm -rf "$1/repository"
git init -q "$1/repository"
git -C "$1/repository" fast-import --quiet <"$1/stream"
