#!/bin/sh
# mariadb_load.sh DIR QUERIES: a server on a socket of its own, its load, and its end.
set -eu
mariadbd --no-defaults --user="$(id -un)" --datadir="$1/data" --socket="$1/db.sock" --skip-networking \
    --pid-file="$1/db.pid" --log-error="$1/db.log" --innodb-buffer-pool-size=64M &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
until mariadb-admin --no-defaults --user=root --socket="$1/db.sock" ping >/dev/null 2>&1; do
    kill -0 "$server"
    sleep 0.02
done
mariadb-slap --no-defaults --user=root --socket="$1/db.sock" --engine=innodb --concurrency=1 \
    --auto-generate-sql --auto-generate-sql-load-type=mixed --auto-generate-sql-add-autoincrement \
    --number-char-cols=3 --number-int-cols=3 --number-of-queries="$2" >/dev/null
echo "answered $2 queries"
