#!/bin/sh
# http2.sh DIR REQUESTS: nghttpd on a port of its own, asked by h2load, and its end.
set -eu
mkdir -p "$1/www"
head -c 2048 /dev/zero | tr '\0' x >"$1/www/index.html"
port=18082
nghttpd --no-tls --address=127.0.0.1 -d "$1/www" "$port" >/dev/null 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
until h2load -n 1 "http://127.0.0.1:$port/index.html" 2>/dev/null | grep -q '1 succeeded'; do
    kill -0 "$server"
    sleep 0.02
done
h2load -n "$2" -c 4 -m 10 -t 1 "http://127.0.0.1:$port/index.html"
