"""Files that are something else than their names say: one line each that says what they are, and what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.stack import EMBEDDED
from services.common.preflight.checks import Asked, problems
from tests.support.tiny_checkpoints import write_tiny
from tests.support.tiny_gguf import write_gguf

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"
W, T, JINJA = "model.safetensors", "tokenizer.json", "chat_template.jinja"


def renamed(name: str) -> Callable[[Path], object]:
    return lambda target: (target / W).rename(target / name)


def without_tokens(target: Path) -> None:
    form = json.loads((target / T).read_text()) | {"model": {"type": "BPE", "vocab": {}, "merges": []}}
    (target / T).write_text(json.dumps(form))


# What is done to the target's folder, the file that the line names, and what it says of it.
WRONG: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an adapter's": (renamed("adapter_model.safetensors"), "", "is a LoRA adapter, not a model"),
    "named otherwise": (renamed("model (1).safetensors"), "model (1).safetensors", "; rename it"),
    "their makers'": (renamed("consolidated.safetensors"), "consolidated.safetensors", "is in its makers' own layout"),
    "zipped": (lambda t: (t / W).write_bytes(b"PK\3\4" + bytes(1 << 17)), W, "is an archive or pickled"),
    "GGUF": (lambda t: (t / W).write_bytes(b"GGUF" + bytes(99)), W, "is a GGUF file under another name"),
    "without tokens": (without_tokens, T, "has no model with a vocabulary"),
    "of two files": (lambda t: (t / JINJA).write_text("{% include 'a' %}"), JINJA, "it takes another file"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_file_of_a_folder_is_told_for_what_it_is(kind: str, tmp_path: Path) -> None:
    change, file, said = WRONG[kind]
    target = Path(shutil.copytree(EMBEDDED / "target", tmp_path / "target"))
    (target / "manifest.sha256").unlink()
    change(target)
    found = next(iter(problems(Asked(str(target)))))
    assert found.line.startswith(str(target / file)) and said in found.line


@pytest.mark.parametrize("begins", [b"\x80\x02", b"\x1f\x8b"])
def test_a_head_of_any_length_is_that_of_safetensors(begins: bytes, tmp_path: Path) -> None:
    """Of a length whose last bytes are a pickle's or an archive's first ones, too."""
    target = Path(shutil.copytree(EMBEDDED / "target", tmp_path / "target"))
    (target / "manifest.sha256").unlink()
    size = int.from_bytes(begins, "little") + (1 << 16)
    whole = (target / W).read_bytes()
    old = int.from_bytes(whole[:8], "little")
    assert old < size
    (target / W).write_bytes(size.to_bytes(8, "little") + whole[8 : 8 + old].ljust(size) + whole[8 + old :])
    assert [each.line for each in problems(Asked(str(target)))] == []


def test_a_folder_whose_weights_are_drawn_may_hold_any_file(tmp_path: Path) -> None:
    target = Path(shutil.copytree(EMBEDDED / "target", tmp_path / "target"))
    (target / W).rename(target / "consolidated.safetensors")
    assert not [one for one in problems(Asked(str(target), weightless=True)) if "layout" in one.line]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("m.gguf.part", b"GGUF\3\0\0\0", "is a download that was not finished; finish it"),
        ("m.gguf", POINTER, "is a Git LFS pointer, not the file itself; run: git lfs install && git lfs pull"),
        ("m.gguf", b"<!DOCTYPE html>", "is a web page, not the file itself; download it again: "),
        ("m.gguf", b"lmgg" + bytes(32), "is not a complete GGUF file: it does not begin with GGUF; fetch it again"),
    ],
)
def test_one_file_that_is_no_model_is_told_for_what_it_is(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    (found,) = problems(Asked(str(tmp_path / name)))
    assert found.line.startswith(f"{tmp_path / name}: {said}")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, ""),
        ({"llama.block_count": 99}, "tensor model.layers.10.input_layernorm.weight is missing"),
        ({"llama.feed_forward_length": 7}, "tensor model.layers.0.mlp.gate_proj.weight has shape"),
        ({"llama.attention.head_count": 0}, "num_attention_heads: must be in [1, "),
        ({"tokenizer.ggml.eos_token_id": 1_000_000}, "eos_token_id: [1000000, 0] are not token ids"),
        ({"general.alignment": 3}, "is not a complete GGUF file: general.alignment is 3"),
    ],
)
def test_what_is_wrong_in_a_gguf_file_is_told_of_that_file(
    keys: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything starts; the folder that describes it to the loader is nobody's to mend."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(tmp_path / "m.gguf", write_tiny(tmp_path / "llama", seed=3, family="llama").target, keys=keys)
    found = [problem.line for problem in problems(Asked(str(tmp_path / "m.gguf"))) if problem.fatal]
    assert [line.startswith(f"{tmp_path / 'm.gguf'}: {said}") for line in found] == ([True] if said else []), found
