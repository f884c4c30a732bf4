"""generation_config.json: its end tokens are the model's, its sampling is told and no more."""

import json
from pathlib import Path
from typing import Any

import pytest

from services.common.model import ModelError, load_target
from services.common.model.families import read_target_spec
from services.common.model.files.manifest import write_manifest
from tests.support.tiny_checkpoints import write_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A target whose config.json says that token 0 ends a text."""
    return write_tiny(tmp_path).target


def write(folder: Path, text: str) -> Path:
    (folder / "generation_config.json").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("said", "ends"),
    [([5, 0], (0, 5)), (7, (0, 7)), ([0], (0,)), (None, (0,)), ([], (0,))],
    ids=["as Qwen3 publishes it", "one", "the same", "null", "none"],
)
def test_end_tokens_of_both_files_end_a_text(folder: Path, said: Any, ends: tuple[int, ...]) -> None:
    assert read_target_spec(write(folder, json.dumps({"eos_token_id": said}))).eos_token_ids == ends


def test_sampling_is_told_by_the_names_of_request_fields(folder: Path) -> None:
    text = '{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "max_length": 7, "new_key": [1]}'
    assert dict(read_target_spec(write(folder, text)).recommended_sampling) == {
        "temperature": 0.6, "top_k": 20, "top_p": 0.95
    }  # fmt: skip
    greedy = '{"do_sample": false, "temperature": 0.6, "repetition_penalty": 1.1}'
    assert dict(read_target_spec(write(folder, greedy)).recommended_sampling) == {
        "temperature": 0, "repetition_penalty": 1.1
    }  # fmt: skip


def test_advice_without_a_meaning_is_left_out(folder: Path) -> None:
    text = '{"temperature": "warm", "top_k": -1, "top_p": NaN, "min_p": true, "repetition_penalty": 1e400}'
    assert read_target_spec(write(folder, text)).recommended_sampling == ()


@pytest.mark.parametrize(
    "text", ["{", "[]", "[" * 200_000, '{"eos_token_id": [320]}', '{"eos_token_id": [[1]]}', '{"eos_token_id": "end"}']
)
def test_a_damaged_file_is_refused_by_name(folder: Path, text: str) -> None:
    with pytest.raises(ModelError, match=r"generation_config\.json"):
        read_target_spec(write(folder, text))


def test_it_is_part_of_manifest_and_revision(folder: Path) -> None:
    write(folder, '{"eos_token_id": 5}')
    with pytest.raises(ModelError, match=r"generation_config\.json is not listed"):
        load_target(folder)
    write_manifest(folder)
    assert load_target(folder).spec.eos_token_ids == (0, 5)
    (folder / "manifest.sha256").unlink()
    first = load_target(folder).revision
    assert load_target(write(folder, '{"eos_token_id": 6}')).revision != first
