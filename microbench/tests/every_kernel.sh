#!/bin/sh
# Runs every surrogate for a moment, as probe and as inducer, with small sizes: under the sanitizers
# this is where they find what there is to find.
# Usage: every_kernel.sh BINARY
set -eu

binary=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

sizes="--l2 262144 --llc 4194304 --memory 67108864 --io-bytes 16777216 --dir $dir"
names=$("$binary" list $sizes | sed 's/^{"name":"\([^"]*\)".*/\1/')
inducers=$("$binary" list $sizes | grep '"roles":\["probe","inducer"\]' | sed 's/^{"name":"\([^"]*\)".*/\1/')

"$binary" probe $sizes --chunk 0.01 --rounds 2 $names dummy.ok > "$dir/probed"
for name in $names dummy.ok; do
    if [ "$(grep -c "\"event\":\"chunk\",\"name\":\"$name\"" "$dir/probed")" -ne 2 ]; then
        echo "$name was not probed twice:" >&2
        grep "\"$name\"" "$dir/probed" >&2 || true
        exit 1
    fi
done
if grep '"event":"error"' "$dir/probed" >&2; then exit 1; fi

# Between idle and all of the time: how much of a short time it is depends on what else runs, and next
# to much else it may be none of it. What never loads does not in 20 seconds either.
loads() {
    for seconds in 0.2 2 20; do
        "$binary" induce $sizes --intensity 0.5 --copies 2 --seconds "$seconds" "$1" \
            > "$dir/induced" || return
        grep -Eq '"event":"end","duty":0\.0*[1-9]' "$dir/induced" && return
    done
    return 1
}
for name in $inducers; do
    loads "$name" || {
        echo "$name did not load as it should:" >&2
        cat "$dir/induced" >&2
        exit 1
    }
done

# What fails, fails alone and says why.
"$binary" probe $sizes --rounds 2 dummy.fail dummy.break dummy.wrong dummy.ok > "$dir/failed"
[ "$(grep -c '"event":"error","name":"dummy\.' "$dir/failed")" -eq 3 ]
[ "$(grep -c '"event":"chunk","name":"dummy.ok"' "$dir/failed")" -eq 2 ]

left=$(find "$dir" -name '.kongming-*')
if [ -n "$left" ]; then
    echo "left behind: $left" >&2
    exit 1
fi
