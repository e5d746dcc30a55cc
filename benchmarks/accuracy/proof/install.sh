#!/bin/sh
# What the list of the proof needs from Debian and PyPI (as root). Nothing of it is run.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends \
    apache2-utils borgbackup bwa clang ffmpeg flac git imagemagick luajit minisat nginx-light nodejs \
    octave povray redis-server ripgrep stockfish zstd
here=$(cd "$(dirname "$0")" && pwd)
python3 -m venv "$here/.venv"
"$here/.venv/bin/pip" install --quiet "duckdb==1.*" "lmdb==1.*" "numpy==2.*" "polars==1.*"
