#!/bin/sh
# web.sh DIR REQUESTS: nginx on a port of its own, asked by ab, and its end.
set -eu
mkdir -p "$1/www" "$1/tmp"
head -c 4096 /dev/zero | tr '\0' x >"$1/www/index.html"
port=18080
cat >"$1/nginx.conf" <<CONF
daemon off;
master_process off;
pid $1/nginx.pid;
error_log $1/error.log;
events { worker_connections 64; }
http {
    access_log $1/access.log;
    client_body_temp_path $1/tmp;
    proxy_temp_path $1/tmp;
    fastcgi_temp_path $1/tmp;
    uwsgi_temp_path $1/tmp;
    scgi_temp_path $1/tmp;
    server { listen 127.0.0.1:$port; root $1/www; keepalive_requests 1000000; }
}
CONF
nginx -p "$1" -c "$1/nginx.conf" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true' EXIT
until ab -q -n 1 "http://127.0.0.1:$port/" >/dev/null 2>&1; do sleep 0.01; done
ab -q -k -n "$2" -c 8 "http://127.0.0.1:$port/"
