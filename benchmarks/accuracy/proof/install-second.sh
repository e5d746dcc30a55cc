#!/bin/sh
# What the second list needs from Debian and PyPI (as root), after install.sh. Nothing of it is run.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends \
    default-jdk-headless fonts-urw-base35 ghostscript lammps mariadb-client mariadb-server-core \
    ncbi-blast+ nghttp2-client nghttp2-server pari-gp pypy3 python3-xapian r-base-core ruby rustc sox \
    squashfs-tools
here=$(cd "$(dirname "$0")" && pwd)
"$here/.venv/bin/pip" install --quiet "faiss-cpu==1.*" "igraph==0.*" "opencv-python-headless==4.*" \
    "plyvel==1.*" "xgboost==3.*" "z3-solver==4.*"
