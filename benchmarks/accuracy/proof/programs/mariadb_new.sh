#!/bin/sh
# mariadb_new.sh DIR: an empty data folder.
set -eu
mariadb-install-db --no-defaults --user="$(id -un)" --datadir="$1/data" --auth-root-authentication-method=normal \
    --skip-test-db >/dev/null 2>&1
