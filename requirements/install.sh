#!/usr/bin/env bash
# Makes or refreshes a virtual environment: install.sh FOLDER LOCK [REQUIREMENTS...]
# Every file of LOCK must have one of its hashes; REQUIREMENTS are taken by version, for pip wants hashes of all in one call.
set -euo pipefail
folder=$1
lock=$2
by_version=("${@:3}")
if [[ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]]; then
    echo "paceline: this command needs Linux on x86-64, not $(uname -s) on $(uname -m)." >&2
    exit 1
fi
for candidate in "${PYTHON:-python3}" python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [[ -z "${python:-}" ]]; then
    echo "paceline: Python 3.11 or 3.12 is needed and was not found; name one with PYTHON=/path/to/python." >&2
    exit 1
fi
[[ -x "$folder/bin/python" ]] || "$python" -m venv "$folder"
echo "paceline: installing into $folder; the first time this downloads packages and takes some minutes" >&2

# A line for each package that pip turns to, and for each large file that it downloads: show [TOTAL]
show() {
    local count=0 word name rest
    while read -r word name rest; do
        case $word in
            Collecting | Processing) echo "  $((++count))${1:+ of $1}: ${name##*/}" ;;
            Downloading) [[ $rest != *" MB)" ]] || echo "      downloading $rest" ;;
            Installing) echo "  unpacking" ;;
        esac
    done >&2
}
pip=("$folder/bin/python" -m pip install --disable-pip-version-check --progress-bar off)
"${pip[@]}" --require-hashes --requirement "$lock" | show "$(grep -c '^[A-Za-z0-9]' "$lock")"
if ((${#by_version[@]})); then
    "${pip[@]}" "${by_version[@]/#/--requirement=}" --constraint requirements/constraints.txt | show
fi
touch "$folder/.installed"
