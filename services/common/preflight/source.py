"""A checkpoint as it is named: a folder, or a hub id of which nothing is fetched but what is asked for."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from services.common.serving.hub import described_folder, hub_files, is_hub_id, local_folder, local_path


class Source:
    """The files of one checkpoint."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.remote = is_hub_id(name)
        """A hub id: not all of its files are here."""

    @cached_property
    def described(self) -> Path | None:
        """The folder that describes a GGUF file or a packaged model, if the name is that of one.

        Raises:
            FolderError: the file is damaged or not served.
        """
        return None if self.remote else described_folder(local_path(self.name))

    @cached_property
    def files(self) -> Mapping[str, int]:
        """Names of all files that are there, or that the hub has, and their bytes.

        Raises:
            FolderError: the hub does not know the id, and it is not cached.
            OSError: the folder cannot be read.
        """
        if self.remote:
            return hub_files(self.name)
        return {path.name: path.stat().st_size for path in self.folder().iterdir() if path.is_file()}

    def folder(self, *files: str) -> Path:
        """Return a folder that holds those of the named files that there are; a hub's others stay there.

        Raises:
            FolderError: they cannot be fetched.
        """
        if not self.remote:
            return self.described or local_path(self.name)
        return local_folder(self.name, [name for name in files if name in self.files])

    def place(self, file: str) -> str:
        """How people find a file; what describes a GGUF file stands in that itself."""
        if self.described is not None:
            return str(local_path(self.name))
        return f"{self.name}/{file}" if self.remote else str(local_path(self.name) / file)
