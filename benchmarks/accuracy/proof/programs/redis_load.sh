#!/bin/sh
# redis_load.sh DIR REQUESTS: a server on a socket of its own, its load, and its end.
set -eu
redis-server --port 0 --unixsocket "$1/redis.sock" --save '' --appendonly no --daemonize no \
    --logfile "$1/redis.log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
until redis-cli -s "$1/redis.sock" ping >/dev/null 2>&1; do sleep 0.01; done
redis-benchmark -s "$1/redis.sock" -q -n "$2" -c 8 -P 4 -r 100000 -d 200 -t set,get,lpush,zadd \
    >/dev/null
echo served
