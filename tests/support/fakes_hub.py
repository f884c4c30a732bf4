"""A cache as huggingface_hub lays it out: blobs, and a snapshot of links to them."""

import shutil
from pathlib import Path

REVISION = "0123456789" * 4


def cached(cache: Path, name: str, folder: Path) -> Path:
    """Puts the files of a folder into the cache as hub id `name`; returns the snapshot's folder."""
    root = cache / f"models--{name.replace('/', '--')}"
    blobs, snapshot = root / "blobs", root / "snapshots" / REVISION
    for made in (blobs, snapshot, root / "refs"):
        made.mkdir(parents=True)
    (root / "refs/main").write_text(REVISION)
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = blobs / f"{number:040d}"
        shutil.copyfile(file, blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot
