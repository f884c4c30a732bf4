#!/usr/bin/env bash
# Unpacks Debian's Chromium and the libraries that it lacks here into a folder, unless one is installed: chromium.sh FOLDER
set -euo pipefail
folder=$1
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    if command -v "$name" > /dev/null; then
        exit 0
    fi
done
if ! command -v apt-get > /dev/null || ! command -v dpkg-deb > /dev/null; then
    echo "paceline: install chromium; this machine has no apt-get to take it from." >&2
    exit 1
fi
mkdir -p "$folder"
cd "$folder"
mapfile -t packages < <(apt-get --simulate --no-install-recommends install chromium-headless-shell fonts-dejavu-core \
    | awk '$1 == "Inst" { print $2 }')
apt-get download --quiet --quiet "${packages[@]}"
for package in *.deb; do
    dpkg-deb --extract "$package" .
    rm "$package"
done
cat > fonts.conf <<END
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <include ignore_missing="yes">$PWD/etc/fonts/fonts.conf</include>
  <dir>/usr/share/fonts</dir>
  <dir>$PWD/usr/share/fonts</dir>
  <cachedir>$PWD/cache</cachedir>
</fontconfig>
END
