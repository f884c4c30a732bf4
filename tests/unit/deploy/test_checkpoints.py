"""What `make up` finds out about MODEL and DRAFTER before anything starts."""

import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest

from deploy import checkpoints
from deploy.cluster.settings import ClusterSettings
from deploy.stack import EMBEDDED, REPOSITORY, StackError, StackSettings, judged
from tests.support.fakes_hub import cached
from tests.support.tiny_chains import write_mtp
from tests.support.tiny_checkpoints import write_tiny

MISSING = "/nonexistent: no such folder; give the folder that holds config.json, or a model of the hub as owner/name"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EMBEDDED / "target", tmp_path / "model"))


def resolved(asked: StackSettings) -> StackSettings:
    return checkpoints.resolved(asked, judged(asked))


def test_all_processes_get_absolute_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EMBEDDED)
    found = resolved(StackSettings(model="target", drafter="drafter"))
    assert (found.model, found.drafter) == (str(EMBEDDED / "target"), str(EMBEDDED / "drafter"))


def test_hub_ids_are_resolved_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    target, drafter = (cached(tmp_path, f"acme/{kind}", EMBEDDED / kind) for kind in ("target", "drafter"))
    (target / "other.bin").write_bytes(bytes(200_000_000))
    asked, told = StackSettings(model="acme/target", drafter="acme/drafter"), list[str]()
    found = checkpoints.resolved(asked, judged(asked), told.append)
    assert (found.model, found.drafter) == (str(target), str(drafter))
    assert [line.partition(";")[0] for line in told] == ["acme/target has 0.0 GB", "acme/drafter has 0.0 GB"]


def test_a_drafter_is_looked_at_only_when_it_is_used(model: Path) -> None:
    asked = StackSettings(model=str(model), drafter="/nonexistent")
    with pytest.raises(StackError, match=rf"^{MISSING}$"):
        resolved(asked)
    assert resolved(replace(asked, proposer="ngram")).model == str(model)


@pytest.mark.parametrize(
    ("file", "text", "refusal"),
    [
        ("config.json", None, "no such file"),
        ("config.json", "{", "cannot be read: "),
        ("config.json", "[" * 200_000, "cannot be read: "),
        ("config.json", "[]", "is not a JSON object"),
        ("tokenizer.json", None, "no such file"),
    ],
)
def test_a_broken_folder_is_refused_in_one_line(model: Path, file: str, text: str | None, refusal: str) -> None:
    (model / file).unlink()
    if text is not None:
        (model / file).write_text(text)
    with pytest.raises(StackError) as refused:
        resolved(StackSettings(model=str(model)))
    assert str(refused.value).startswith(f"{model / file}: {refusal}")
    assert "\n" not in str(refused.value)


def test_up_says_one_line_and_starts_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "deploy.up", "--model", "/nonexistent"],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout + done.stderr, done.returncode) == (f"{MISSING}\n", 1)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3.0, "processor seconds"
    assert list(tmp_path.iterdir()) == [], "not even a folder for a run"


def test_the_models_own_head_is_found_by_its_name(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = write_mtp(tmp_path / "hybrid")
    asked = StackSettings(model=str(pair.target), drafter="mtp")
    assert resolved(asked).drafter == "mtp"
    with pytest.raises(StackError, match=r"has no drafting head \(mtp"):
        resolved(replace(asked, model=str(write_tiny(tmp_path / "bare", family="qwen3_5_text").target)))
    with pytest.raises(StackError, match=r"Qwen3ForCausalLM has no drafting head \(mtp\)"):
        resolved(replace(asked, model=str(model)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    on_gpu = ClusterSettings(model=str(pair.target), drafter="mtp", device="cuda")
    assert checkpoints.resolved(asked, on_gpu).drafter == "mtp"


def test_threads_that_take_turns_are_told(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    asked, told = StackSettings(model=str(model), proposer="none"), list[str]()
    for threads in (2, 1000):
        cluster = ClusterSettings(model=str(model), proposer="none", target_settings={"threads": threads})
        checkpoints.resolved(asked, cluster, told.append)
    assert [line for line in told if "threads" in line] == [
        "--target.threads: 1000 threads take turns on the 2 cores of this machine: give 2 at most"
    ]
    elsewhere = ClusterSettings(model="m", proposer="none", ray_address="h:1", target_settings={"threads": 1000})
    assert checkpoints.crowded(elsewhere) == ""


def test_shapes_are_compared_without_torchs_compiler(tmp_path: Path) -> None:
    """It takes as long to import as torch, and a refusal would wait for it."""
    families = ("llama", "qwen3_5_moe", "gemma4_text")
    folders = [str(write_tiny(tmp_path / family, seed=2, family=family).target) for family in families]
    program = (
        "import sys\nfrom services.common.preflight.checks import Asked, places, problems, tensors\n"
        f"found = [list(problems(Asked(one), (places, tensors))) for one in {folders}]\n"
        "print(found, 'torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert told.stdout == "[[], [], []] True False\n"
