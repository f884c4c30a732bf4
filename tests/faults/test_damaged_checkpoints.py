"""F11: damaged checkpoints. The loader refuses every one and names a file; a process never becomes ready with one."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.common.model import ModelError, load_target
from services.common.model.drafters import read_drafter_spec
from services.common.model.families import read_target_spec
from services.common.model.files.manifest import MANIFEST_FILE
from tests.faults.answers import judge
from tests.faults.conftest import Size
from tests.support.tiny_checkpoints import write_tiny

WEIGHTS = "model.safetensors"
REFUSED_S = 10.0


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("original"), seed=5).target


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "target"))


def truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def longer(data: bytes, rng: random.Random) -> bytes:
    return data + rng.randbytes(rng.randint(1, 64))


def header_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes of the header's length or of the header itself are others."""
    end = 8 + int.from_bytes(data[:8], "little")
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(end)
        changed[at] ^= rng.randint(1, 255)
    return bytes(changed)


def flipped_bit(data: bytes, rng: random.Random) -> bytes:
    """One bit of the weights is another."""
    changed = bytearray(data)
    start = 8 + int.from_bytes(data[:8], "little")
    changed[rng.randrange(start, len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def zeroed(data: bytes, rng: random.Random) -> bytes:
    """A stretch of the weights is zero, as after a lost write."""
    start = 8 + int.from_bytes(data[:8], "little")
    first = rng.randrange(start, len(data) - 1)
    last = rng.randrange(first + 1, len(data))
    return data[:first] + bytes(last - first) + data[last:]


# With a manifest every change is found; without one the weights' own bits are taken on trust, the rest is not.
DAMAGES = (truncated, longer, header_bytes, flipped_bit, zeroed)
FOUND_WITHOUT_MANIFEST = (truncated, longer)


def refusal(folder: Path) -> str:
    with pytest.raises(ModelError) as refused:
        load_target(folder)
    return str(refused.value)


def test_f11_every_damage_is_refused_by_name(
    folder: Path, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    count = size(100, 1900)
    for trial in range(count):
        data = DAMAGES[trial % len(DAMAGES)](whole, rng)
        if data == whole:
            continue
        (folder / WEIGHTS).write_bytes(data)
        assert WEIGHTS in refusal(folder), trial
    report_counts("damaged_checkpoints", count)


def test_f11_without_a_manifest_the_shape_of_the_file_is_still_checked(
    folder: Path, rng: random.Random, size: Size, full: bool
) -> None:
    (folder / MANIFEST_FILE).unlink()
    whole = (folder / WEIGHTS).read_bytes()
    for percent in range(0, 100, 1 if full else 10):
        length = len(whole) * percent // 100
        (folder / WEIGHTS).write_bytes(whole[:length])
        assert WEIGHTS in refusal(folder), length
    for _ in range(size(20, 100)):
        (folder / WEIGHTS).write_bytes(rng.choice(FOUND_WITHOUT_MANIFEST)(whole, rng))
        assert WEIGHTS in refusal(folder)


def test_f11_a_header_of_any_bytes_ends_in_an_error_of_ours_or_loads(
    folder: Path, rng: random.Random, size: Size
) -> None:
    """Without a manifest a changed name or shape is refused; a change that means nothing is not."""
    (folder / MANIFEST_FILE).unlink()
    whole = (folder / WEIGHTS).read_bytes()
    refused = 0
    for _ in range(size(50, 500)):
        (folder / WEIGHTS).write_bytes(header_bytes(whole, rng))
        try:
            load_target(folder)
        except ModelError:
            refused += 1
    assert refused > 0


JUNK = (
    "", "[" * 200_000, '{"a":' * 200_000, "[" * 500 + "]" * 500, "null", "true", "-1", "0", "0.5", "1e400", "NaN",
    "1" + "0" * 400, "9" * 5000, "100000000", "4294967296", '"text"', '"\\ud800"', "[[1]]", "[]", "{}",
    '{"rope_type": [1]}', '{"rope_type": "yarn", "factor": 1e300}',
    '{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 0}',
)  # fmt: skip


def with_junk(text: str, rng: random.Random) -> str:
    """One value of a JSON object, or the whole of it, is something else; now and then a key is."""
    lines = text.splitlines()
    at = rng.randrange(len(lines))
    key, colon, _ = lines[at].partition(":")
    if rng.randrange(8) == 0:
        key = rng.choice((' "rope_scaling"', ' "rope_parameters"', ' "layer_types"', ' "quantization_config"', ' "a"'))
    end = "," if lines[at].endswith(",") else ""
    lines[at] = f"{key}{colon}{rng.choice(JUNK)}{end}"
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_f11_a_description_of_any_text_ends_in_an_error_of_ours_or_loads(
    name: str, folder: Path, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    (folder / MANIFEST_FILE).unlink()
    whole = (folder / "config.json").read_text()
    refused, count = 0, size(100, 2000)
    for _ in range(count):
        (folder / name).write_text(with_junk(whole, rng))
        try:
            read_target_spec(folder)
        except ModelError as error:
            assert name in str(error)
            assert len(str(error)) < 1000
            refused += 1
    assert refused > count // 20
    report_counts("damaged_descriptions", count)


def test_f11_a_drafters_description_of_any_text_ends_in_an_error_of_ours_or_loads(
    folder: Path, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    drafter = write_tiny(folder, seed=5).drafter
    whole = (drafter / "config.json").read_text()
    refused, count = 0, size(100, 2000)
    for _ in range(count):
        (drafter / "config.json").write_text(with_junk(whole, rng))
        try:
            read_drafter_spec(drafter)
        except ModelError as error:
            assert "config.json" in str(error)
            assert len(str(error)) < 1000
            refused += 1
    assert refused > count // 4
    report_counts("damaged_descriptions", count)


def test_f11_a_process_with_a_damaged_checkpoint_ends(
    folder: Path, tmp_path: Path, rng: random.Random, size: Size, report_counts: Callable[[str, int], None]
) -> None:
    """Real starts: exit code 1 in time, the file named, and never ready."""
    whole = (folder / WEIGHTS).read_bytes()
    starts = size(1, 40)
    took: list[float] = []
    for trial in range(starts):
        (folder / WEIGHTS).write_bytes(DAMAGES[trial % len(DAMAGES)](whole, rng))
        began = time.monotonic()
        command = [sys.executable, "-m", "services.target", "--model", str(folder)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        took.append(time.monotonic() - began)
        assert ended.returncode not in (0, None)
        assert WEIGHTS in ended.stderr
        assert "Traceback" not in ended.stderr
    report_counts("damaged_starts", starts)
    print(f"F11: {starts} starts refused, the slowest in {max(took):.1f} s")
    judge(took, REFUSED_S)
