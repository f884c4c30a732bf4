#!/usr/bin/env bash
# Unpacks Debian's Prometheus (server and promtool) into a folder, unless it is installed: tools.sh FOLDER
set -euo pipefail
folder=$1
if command -v prometheus > /dev/null && command -v promtool > /dev/null; then
    exit 0
fi
if ! command -v apt-get > /dev/null || ! command -v dpkg-deb > /dev/null; then
    echo "paceline: install prometheus and promtool; this machine has no apt-get to take them from." >&2
    exit 1
fi
mkdir -p "$folder"
cd "$folder"
apt-get download --quiet --quiet prometheus
dpkg-deb --extract prometheus_*.deb .
rm prometheus_*.deb
