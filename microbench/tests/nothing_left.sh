#!/bin/sh
# Kills parts of a running inducer or probe in every way, and sees that no process and no file is
# left, at the latest after the next start.
# Usage: nothing_left.sh BINARY
set -eu

binary=$1
dir=$(mktemp -d)
io="$dir/io"
mkdir "$io"
trap 'rm -rf "$dir"' EXIT
sizes="--memory 67108864 --io-bytes 16777216 --dir $io"

fail() {
    echo "$1" >&2
    exit 1
}

# Waits up to 5 s for a condition.
wait_until() {
    tries=0
    until eval "$1"; do
        tries=$((tries + 1))
        [ "$tries" -lt 100 ] || fail "this did not come true: $1"
        sleep 0.05
    done
}

# Gone, or dead and only waiting for somebody to notice.
ended() {
    state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status" 2>/dev/null || true)
    [ -z "$state" ] || [ "$state" = Z ]
}

# Starts an inducer with two workers: its pid is in $supervisor, theirs in $workers.
start() {
    : > "$dir/out"
    "$binary" induce $sizes --copies 2 "$@" > "$dir/out" &
    supervisor=$!
    wait_until 'grep -q "\"ready\"" "$dir/out"'
    workers=$(sed -n 's/.*"pids":\[\([0-9,]*\)\].*/\1/p' "$dir/out" | tr , ' ')
    [ -n "$workers" ] || fail "no workers: $(cat "$dir/out")"
}

all_ended() {
    for pid in $supervisor $workers; do
        ended "$pid" || return 1
    done
}

no_files() {
    [ -z "$(find "$io" -mindepth 1)" ]
}

for name in metadata.create metadata.delete iobench.fsync iobench.write.4M memory.random.8M; do
    # Told to stop.
    start "$name"
    kill -TERM "$supervisor"
    wait "$supervisor" || fail "$name: SIGTERM gave exit status $?"
    all_ended || fail "$name: a process is left after SIGTERM"
    grep -q '"event":"end"' "$dir/out" || fail "$name: no end was told"
    no_files || fail "$name: files are left after SIGTERM"

    # The supervisor is killed.
    start "$name"
    kill -KILL "$supervisor"
    wait "$supervisor" 2>/dev/null || true
    wait_until all_ended
    wait_until no_files

    # A worker is killed.
    start "$name"
    kill -KILL "${workers%% *}"
    status=0
    wait "$supervisor" || status=$?
    [ "$status" -eq 1 ] || fail "$name: a killed worker gave exit status $status"
    grep -q '"event":"error".*signal 9' "$dir/out" || fail "$name: the killed worker was not told"
    all_ended || fail "$name: a process is left after a worker was killed"
    no_files || fail "$name: files are left after a worker was killed"

    # All are killed: the next start removes the files.
    start "$name"
    kill -KILL "$supervisor" $workers 2>/dev/null
    wait "$supervisor" 2>/dev/null || true
    wait_until all_ended
    "$binary" probe $sizes --seconds 0.01 metadata.create > "$dir/next"
    no_files || fail "$name: files are left after the next start"
done

# The parent that holds the lifeline is killed.
mkfifo "$dir/lifeline"
sh -c 'exec 9<>"$1/lifeline"; sleep 60 9<&- & echo $! > "$1/sleeper"; wait' sh "$dir" &
parent=$!
wait_until '[ -s "$dir/sleeper" ]'
exec 8<"$dir/lifeline"
: > "$dir/out"
"$binary" induce $sizes --lifeline 8 metadata.create > "$dir/out" &
supervisor=$!
wait_until 'grep -q "\"ready\"" "$dir/out"'
workers=$(sed -n 's/.*"pids":\[\([0-9,]*\)\].*/\1/p' "$dir/out" | tr , ' ')
kill -KILL "$parent"
kill "$(cat "$dir/sleeper")"
wait "$parent" 2>/dev/null || true
wait_until all_ended
no_files || fail "files are left after the lifeline broke"

# A probe is told to stop, in the middle.
: > "$dir/out"
"$binary" probe $sizes --seconds 60 metadata.create metadata.delete iobench.fsync > "$dir/out" &
supervisor=$!
workers=
wait_until 'grep -q "\"chunk\"" "$dir/out"'
kill -INT "$supervisor" 2>/dev/null || true
kill -TERM "$supervisor"
wait "$supervisor" && fail "a probe that was told to stop claims to be done"
no_files || fail "files are left after a probe was told to stop"

# What another machine made, an earlier version or the user stays.
boot=$(tr -d - < /proc/sys/kernel/random/boot_id | cut -c 1-12)
for name in .kongming-0123456789ab-1-abcdef .kongming-1-abcdef .kongming-notes ".kongming-$boot-notes" \
    ".kongming-$boot-1-abcdef-copy"; do
    mkdir "$io/$name"
    touch "$io/$name/file"
done
mkdir "$io/.kongming-$boot-1-abcdef"
touch "$io/.kongming-$boot-1-abcdef/file"
"$binary" probe $sizes --seconds 0.01 metadata.create > "$dir/next"
[ "$(find "$io" -name file | wc -l)" -eq 5 ] || fail "not left: $(find "$io")"
[ ! -e "$io/.kongming-$boot-1-abcdef" ] || fail "the folder of a process that was killed is left"
