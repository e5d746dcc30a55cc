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

for name in $inducers; do
    "$binary" induce $sizes --intensity 0.5 --copies 2 --seconds 0.2 "$name" > "$dir/induced"
    # Between idle and all of the time: how much of so short a time it is depends on what else runs.
    grep -Eq '"event":"end","duty":0\.0*[1-9]' "$dir/induced" || {
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
