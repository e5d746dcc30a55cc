# Takes snapshots of a tree as backup programs do: hard links for all its files, a tar archive of
# them into a pipe, and the links dropped again. Links rather than copies, because freeing the
# blocks of many files keeps some devices busy long after the program has ended.
# Usage: snapshots.sh DIR TIMES
set -eu
dir=$1
times=$2
while [ "$times" -gt 0 ]; do
    cp -al "$dir/tree" "$dir/snapshot"
    tar -cf - -C "$dir" snapshot | wc -c
    rm -rf "$dir/snapshot"
    times=$((times - 1))
done
