"""Looks at the checkpoints of a stack before anything starts, and finds the folders that all processes get."""

import json
from dataclasses import replace
from pathlib import Path

from deploy.stack import StackError, StackSettings
from services.common.serving.hub import FolderError, local_folder


def resolved(settings: StackSettings) -> StackSettings:
    """The settings with the folders of target and drafter: absolute, hub ids fetched or found in the cache.

    Raises:
        StackError: a folder or one of its files is missing or no JSON object; one line that names it.
    """
    model = _folder(settings.model, "config.json", "tokenizer.json")
    drafter = _folder(settings.drafter, "config.json") if settings.proposer == "dflash" else settings.drafter
    return replace(settings, model=model, drafter=drafter)


def _folder(name: str, *files: str) -> str:
    try:
        folder = local_folder(name).absolute()
    except FolderError as error:
        raise StackError(str(error)) from error
    for file in files:
        _check_object(folder / file)
    return str(folder)


def _check_object(path: Path) -> None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise StackError(f"{path}: cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise StackError(f"{path}: is not a JSON object")
