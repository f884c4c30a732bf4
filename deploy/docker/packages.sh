#!/bin/sh
# Installs the packages of a list as Debian had them at a moment: packages.sh LIST SNAPSHOT. Without a moment the names are
# taken from the mirror that the image has, in the versions of today.
set -euf  # no word of a list is a pattern of files
list=$1
snapshot=$2
if [ -n "$snapshot" ]; then
    # Read from a list of their own, so that the image keeps its sources; apt checks the signatures as ever.
    sources=$(mktemp)
    archive=http://snapshot.debian.org/archive
    for place in "debian/$snapshot bookworm" "debian/$snapshot bookworm-updates" "debian-security/$snapshot bookworm-security"; do
        echo "deb [check-valid-until=no] $archive/$place main" >> "$sources"
    done
    set -- -o "Dir::Etc::SourceList=$sources" -o Dir::Etc::SourceParts=/dev/null
    wanted=$(cat "$list")
else
    set --
    wanted=$(sed 's/=.*//' "$list")
fi
apt-get "$@" update
# shellcheck disable=SC2086 # one word for each package
apt-get "$@" install --yes --no-install-recommends $wanted
rm -rf /var/lib/apt/lists/* "${sources:-}"
