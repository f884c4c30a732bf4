#!/usr/bin/env bash
# Makes the virtual environment of one client: client.sh FOLDER LOCK
# Of some 500 packages in all environments fewer than 200 differ, and uv keeps each of them once. Where uv reaches no
# index, pip takes the same files by their hashes.
set -euo pipefail
folder=$1
lock=$2
uv=.venv-uv/bin/uv
"$uv" venv --quiet --allow-existing --python .venv/bin/python "$folder"
if ! "$uv" pip install --quiet --python "$folder/bin/python" --no-deps --require-hashes --requirement "$lock"; then
    echo "paceline: uv could not install $lock; pip does" >&2
    rm -r "$folder"
    .venv/bin/python -m venv "$folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --require-hashes \
        --requirement "$lock"
fi
# torch's build differs by machine, so no lock has it; who needs it takes that of .venv, behind all packages of its own.
packages="import sysconfig; print(sysconfig.get_path('purelib'))"
if ! "$folder/bin/python" -c 'import torch' 2> /dev/null && grep -q '^triton==' "$lock"; then
    .venv/bin/python -c "$packages" > "$("$folder/bin/python" -c "$packages")/torch-of-paceline.pth"
fi
touch "$folder/.installed"
