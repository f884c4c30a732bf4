"""Wrong checkpoints of every kind: one line each that names the file at fault, and Ray is never started."""

import json
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from huggingface_hub.hf_api import RepoSibling
from safetensors.torch import load_file, save_file

from deploy import up
from deploy.stack import EMBEDDED, StackStoppedError
from tests.support.packed_checkpoints import Layout, awq, fp8, gptq, pack_checkpoint
from tests.support.tiny_checkpoints import SLIDING, write_tiny
from tests.unit.deploy.doctored import doctored

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target and a drafter that are right, without a manifest, which only the loader reads."""
    folder = tmp_path_factory.mktemp("right")
    for kind in ("target", "drafter"):
        shutil.copytree(EMBEDDED / kind, folder / kind)
        (folder / kind / "manifest.sha256").unlink()
    return folder


@pytest.fixture
def pair(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "pair"))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What would have started Ray."""
    begun: list[object] = []

    def start(*given: object) -> None:
        begun.append(given)
        raise StackStoppedError

    monkeypatch.setattr(up, "Stack", start)
    monkeypatch.setattr(up, "leave_when_asked", lambda: None)
    monkeypatch.setattr(up, "stop_signal", lambda: None)
    return begun


def serve(monkeypatch: pytest.MonkeyPatch, *flags: str) -> int:
    usual = ("--address", "127.0.0.1:0", "--http", "")
    monkeypatch.setattr("sys.argv", ["up", *usual, *flags])
    return up.main()


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """The one line with which a start is refused, which is that of the doctor, too."""
    assert serve(monkeypatch, *flags) == 1
    (line,) = [one for one in capsys.readouterr().out.splitlines() if not one.startswith("note: ")]
    assert doctored(monkeypatch, capsys, "--address", "127.0.0.1:0", "--http", "", *flags) == (1, [line])
    return line


def edit(file: Path, **keys: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def without(target: Path, name: str) -> None:
    (target / name).unlink()


def only(target: Path, **files: str) -> None:
    """The folder holds these files and no others; "__" stands for the point before an ending."""
    shutil.rmtree(target)
    target.mkdir()
    for name, content in files.items():
        (target / name.replace("__", ".")).write_text(content)


def no_weights_but(name: str) -> Callable[[Path], object]:
    def change(target: Path) -> None:
        (target / "model.safetensors").rename(target / name)

    return change


def index(target: Path, shards: int) -> None:
    """An index that names shards, of which only the first is there."""
    (target / "model.safetensors").rename(target / "model-00001.safetensors")
    names = {f"t{number}": f"model-0000{number + 1}.safetensors" for number in range(shards)}
    (target / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def renamed(file: Path, before: str) -> None:
    save_file({before + name: tensor for name, tensor in load_file(file).items()}, file)


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def dangling(file: Path) -> None:
    file.unlink()
    file.symlink_to("../../blobs/gone")


def tokens(target: Path, count: int) -> None:
    file = target / "tokenizer.json"
    form = json.loads(file.read_text())
    form["model"]["vocab"] |= {"zzzz": count}
    file.write_text(json.dumps(form))


JINJA, SETTINGS = "chat_template.jinja", "tokenizer_config.json"
ADAPTER = '{"base_model_name_or_path": "acme/base"}'
W, C, T = "model.safetensors", "config.json", "tokenizer.json"
# What is done to the target's folder, the file that the line names, and what it says of it.
WRONG: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "empty": (only, "", "is empty"),
    "no config": (lambda t: without(t, C), C, "no such file"),
    "config is a list": (lambda t: (t / C).write_text("[]"), C, "is not a JSON object; fetch it again"),
    "config is cut": (lambda t: (t / C).write_text("{"), C, "cannot be read"),
    "config is empty": (lambda t: (t / C).write_text(""), C, "is empty"),
    "config is a pointer": (lambda t: (t / C).write_text(POINTER), C, "is a Git LFS pointer"),
    "config is a page": (lambda t: (t / C).write_text("<!DOCTYPE html><p>401"), C, "is a web page"),
    "config is a pipe": (lambda t: fifo(t / C), C, "no such file"),
    "architecture": (lambda t: edit(t / C, architectures=["MistralForCausalLM"]), C, "is not supported, only"),
    "quantised": (lambda t: edit(t / C, quantization_config={"quant_method": "x"}), C, "quantization_config"),
    "unknown key": (lambda t: edit(t / C, softmax_cap=3), C, "softmax_cap: is not a supported key"),
    "weights are pickle": (no_weights_but("pytorch_model.bin"), "", "pickled weights only (pytorch_model.bin)"),
    "weights are TensorFlow's": (no_weights_but("tf_model.h5"), "", "TensorFlow's weights only"),
    "weights are ONNX's": (no_weights_but("model.onnx"), "", "ONNX's weights only"),
    "download not finished": (no_weights_but("model.safetensors.incomplete"), "", "a download that was not finished"),
    "no weights": (lambda t: without(t, W), "", "has no weights"),
    "weights are a pointer": (lambda t: (t / W).write_text(POINTER), W, "run: git lfs install && git lfs pull"),
    "weights are cut": (lambda t: cut(t / W), W, "is not a complete safetensors file"),
    "weights are gone": (lambda t: dangling(t / W), "", "has no weights"),
    "shards without index": (
        lambda t: (t / W).rename(t / "model-00001-of-00002.safetensors"), f"{W}.index.json", "is one of several"
    ),
    "missing shard": (lambda t: index(t, 2), "model-00002.safetensors", "no such file"),
    "adapter": (
        lambda t: only(t, adapter_config__json=ADAPTER), "", "LoRA adapter of acme/base"
    ),
    "makers' own layout": (lambda t: only(t, params__json="{}"), "", "is in its makers' own layout"),
    "pipeline": (lambda t: only(t, model_index__json="{}"), "", "is a diffusers pipeline"),
    "widths": (lambda t: edit(t / C, intermediate_size=640), W, "has shape"),
    "a wrapper's names": (lambda t: renamed(t / W, "language_model."), "", "is missing, and language_model.model."),
    "layers": (lambda t: edit(t / C, num_hidden_layers=40), "", "is missing"),
    "no tokenizer": (lambda t: without(t, T), T, "no such file"),
    "tokenizer is cut": (lambda t: (t / T).write_text("{"), T, "cannot be read"),
    "tokenizer of another model": (lambda t: tokens(t, 1 << 20), T, "they are of different models"),
    "template": (lambda t: (t / "chat_template.jinja").write_text("{% if"), "chat_template.jinja", "does not compile"),
    "template's filter": (
        lambda t: (t / JINJA).write_text("{{ messages | shout }}"), JINJA, "does not compile"
    ),
    "template is no text": (
        lambda t: (t / JINJA).write_bytes(b"\xff{{"), JINJA, "is not UTF-8 text"
    ),
    "template of no kind": (
        lambda t: edit(t / SETTINGS, chat_template=["x"]), SETTINGS, "is none that is known"
    ),
    "a drafter": (lambda t: edit(t / C, architectures=["DFlashDraftModel"]), C, "give it as --drafter"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_folder_is_one_line_and_starts_nothing(
    kind: str, pair: Path, started: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    change, file, said = WRONG[kind]
    change(pair / "target")
    line = refused(monkeypatch, capsys, "--model", str(pair / "target"))
    assert line.startswith(str(pair / "target" / file)) and said in line
    assert started == []


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--context-limit", "100000"), "--context-limit: 100000 are too many: "),
        (("--max-model-len=100000",), " positions; give fewer, or leave it out"),
        (("--device", "cuda"), "--device cuda: no GPU that this process may use; leave it out"),
        (("--placement", "gpu"), "--device cuda: no GPU that this process may use; leave it out"),
    ],
)
def test_what_the_model_or_the_machine_has_not_is_one_line_and_starts_nothing(
    flags: tuple[str, ...], said: str, pair: Path, started: list[object], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert said in refused(monkeypatch, capsys, "--model", str(pair / "target"), *flags)
    assert started == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"hidden_size": 128}, "hidden_size: 128 differs from the target's 256: take a drafter that was made"),
        ({"vocab_size": 1 << 17}, "vocab_size: 131072 differs from the target's"),
        ({"num_target_layers": 40}, "num_target_layers: 40 differs from the target's"),
        ({"architectures": ["Qwen3ForCausalLM"]}, "is a model (Qwen3ForCausalLM), not a drafter of one"),
        ({"architectures": ["OtherDraftModel"]}, "is not supported, only"),
    ],
)
def test_a_drafter_of_another_model_is_one_line_and_starts_nothing(
    keys: dict[str, Any], said: str, pair: Path, started: list[object], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    edit(pair / "drafter" / C, **keys)
    flags = ("--model", str(pair / "target"), "--drafter", str(pair / "drafter"))
    line = refused(monkeypatch, capsys, *flags)
    assert line.startswith(str(pair / "drafter")) and said in line
    assert started == []


@pytest.mark.parametrize("drafter", ["itself", "mtp", "another model"])
def test_a_model_in_the_place_of_a_drafter_is_told(
    drafter: str, pair: Path, started: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(pair / "target", pair / "another")
    given = {"itself": str(pair / "target"), "mtp": "mtp", "another model": str(pair / "another")}[drafter]
    said = {"itself": "is the model itself", "mtp": "has no drafting head (mtp)", "another model": "is a model ("}[
        drafter
    ]
    line = refused(monkeypatch, capsys, "--model", str(pair / "target"), "--drafter", given)
    assert said in line and "leave out --drafter" in line and f"/{C}: " in line
    assert started == []


DAMAGES: dict[str, Callable[[Path], object]] = {
    "gone": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "half": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "pointer": lambda file: file.write_text(POINTER),
    "page": lambda file: file.write_text("<html>login</html>"),
    "list": lambda file: file.write_text("[]"),
    "object": lambda file: file.write_text("{}"),
    "number": lambda file: file.write_text("7"),
    "deep": lambda file: file.write_text("[" * 200_000),
    "bytes": lambda file: file.write_bytes(b"\xff\xfe\x00" * 100),
    "more": lambda file: file.write_bytes(file.read_bytes() + b"\0" * 99),
    "folder": folder,
    "pipe": fifo,
    "dangling": dangling,
}
FILES = [
    *(f"target/{name}" for name in (C, "generation_config.json", T, "tokenizer_config.json", W, f"{W}.index.json")),
    *(f"drafter/{name}" for name in (C, W)),
]


@pytest.mark.parametrize("file", FILES)
def test_whatever_is_done_to_a_file_is_one_line_that_names_it_or_serves(
    file: str, original: Path, tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], report_counts: Callable[[str, int], None], full: bool,
) -> None:  # fmt: skip
    """No line tells of Python, and each is there before anything starts. By default a file has every other damage."""
    chosen = [*DAMAGES] if full else [*DAMAGES][FILES.index(file) % 2 :: 2]
    for name in chosen:
        damage = DAMAGES[name]
        pair = Path(shutil.copytree(original, tmp_path / name))
        if file.endswith("index.json"):
            index(pair / "target", 1)
        damaged = pair / file
        if not damaged.exists():
            damaged.write_text("{}")
        damage(damaged)
        begun = len(started)
        code = serve(monkeypatch, "--model", str(pair / "target"), "--drafter", str(pair / "drafter"))
        lines = [one for one in capsys.readouterr().out.splitlines() if not one.startswith("note: ")]
        assert (code, len(started) - begun, len(lines)) in ((1, 0, 1), (0, 1, 0)), (name, lines)
        for line in lines:
            assert line.startswith(str(damaged.parent)), (name, line)
            assert not re.search(r"[A-Z]\w+Error\b|Errno|object has no|Traceback", line), (name, line)
        shutil.rmtree(pair)
    report_counts("damaged_files", len(chosen))


def test_a_path_is_never_asked_of_the_hub(
    tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", pytest.fail)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", pytest.fail)
    (tmp_path / "models").mkdir()
    (tmp_path / "models/qwen").mkdir()
    monkeypatch.chdir(tmp_path)
    for name, remedy in (
        ("./qwem", ""), ("models/qwem", "did you mean models/qwen?"), ("../x", ""), ("a/b/c", ""),
        ("smolm2", "did you mean smollm2?"), ("qwen3:4b", "a model of the hub is named owner/name"),
    ):  # fmt: skip
        line = refused(monkeypatch, capsys, "--model", name)
        assert line.startswith(f"{name}: no such folder") and remedy in line
    for name in ("https://huggingface.co/acme/model", "hf://acme/model", "https://hf.co/acme/model?x=1"):
        line = refused(monkeypatch, capsys, "--model", name)
        assert line == f"{name}: is an address, not a name; did you mean acme/model?"
    for name, remedy in (
        ("s3://bucket/model", "fetch it, and give its folder"),
        ("https://example.org/m.tar", "fetch it, and give its folder"),
        ("file:///models/qwen", "did you mean /models/qwen?"),
    ):  # fmt: skip
        assert refused(monkeypatch, capsys, "--model", name) == f"{name}: is an address, not a name; {remedy}"
    assert started == []


def test_what_people_should_know_is_told_and_serves(
    pair: Path, started: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = pair / "target"
    without(target, "tokenizer_config.json")
    assert serve(monkeypatch, "--model", str(target)) == 0
    assert "no chat template: completions work, chats are refused" in capsys.readouterr().out
    (target / "chat_template.jinja").write_text("{{ '<|im_start|>' }}{{ messages[0]['content'] }}")
    assert serve(monkeypatch, "--model", str(target)) == 0
    assert "the chat template writes <|im_start|>, which tokenizer.json has not as tokens" in capsys.readouterr().out
    (target / "chat_template.jinja").write_text("  ")
    (target / "adapter_config.json").write_text(ADAPTER)
    assert serve(monkeypatch, "--model", str(target)) == 0
    assert "no chat template" in (told := capsys.readouterr().out) and "adapter_config.json: is not applied" in told
    assert serve(monkeypatch, "--model", str(target), "--drafter", str(pair / "drafter"), "--proposer", "ngram") == 0
    assert "note: --drafter is not used: n-gram drafts need none" in capsys.readouterr().out
    assert len(started) == 4


@pytest.mark.parametrize(
    "family",
    ["llama", "qwen2", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_next", "qwen3_moe", "qwen3_5_moe", *SLIDING],
)
def test_a_right_folder_of_every_family_passes(family: str, tmp_path: Path) -> None:
    from services.common.preflight.checks import CHECKS, Asked, problems, template

    made = write_tiny(tmp_path, seed=2, family=family)
    checks = [check for check in CHECKS if check is not template]
    assert list(problems(Asked(str(made.target), str(made.drafter)), checks)) == []


@pytest.mark.parametrize("layout", [fp8((128, 128), torch.bfloat16), awq(32), gptq(4, 32, True)])
def test_a_right_folder_of_packed_weights_passes(layout: Layout, tmp_path: Path) -> None:
    from services.common.preflight.checks import Asked, configurations, places, problems, tensors

    made = write_tiny(tmp_path / "plain", seed=2, family="llama")
    shutil.copytree(made.target, tmp_path / "packed")
    pack_checkpoint(tmp_path / "packed", tmp_path / "twin", layout)
    asked = Asked(str(tmp_path / "packed"))
    assert list(problems(asked, (places, configurations, tensors))) == []


def test_of_a_hub_model_that_is_refused_nothing_but_its_configuration_is_fetched(
    pair: Path, started: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, asked = pair / "target", list[str]()
    edit(target / C, architectures=["MistralForCausalLM"])

    def fetch(name: str, allow_patterns: list[str], revision: str | None) -> str:
        asked.extend(allow_patterns)
        return str(target)

    sizes = [RepoSibling(rfilename=path.name, size=1) for path in target.iterdir()]
    told = type("Told", (), {"siblings": sizes})()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *given, **more: told)
    assert serve(monkeypatch, "--model", "acme/mistral") == 1
    assert "MistralForCausalLM" in capsys.readouterr().out
    assert set(asked) <= {"config.json", "generation_config.json"}
    assert started == []


def test_a_busy_port_is_told_first(
    started: list[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = f"127.0.0.1:{taken.getsockname()[1]}"
        assert serve(monkeypatch, "--model", "/nowhere", "--http", busy) == 1
        told = capsys.readouterr().out.strip()
        # The doctor says what is wrong with the model, too.
        code, (port, model) = doctored(monkeypatch, capsys, "--model", "/nowhere", "--http", busy)
    assert told.startswith(f"--http: {busy} is in use")
    assert (code, port) == (1, told) and model.startswith("/nowhere: no such folder")
    assert started == []
