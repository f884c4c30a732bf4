"""Every setting of a target and a drafter can be given to the controller, and is judged before anything starts."""

import dataclasses
import json
import subprocess
import sys
import time
import typing
from pathlib import Path
from typing import Any

import pytest

from deploy.cluster import derived
from deploy.cluster.groups import DRAFTER, TARGET
from deploy.cluster.settings import ClusterSettings
from deploy.cluster.specs import pair_spec
from deploy.stack import EMBEDDED
from services.common.preflight.memory import Gpu
from services.common.serving import settings
from services.common.serving.settings import Group
from tests.support.pace import kept, within_s

# Values that fit beside the defaults, for settings of which twice the default does not.
SAMPLES = {
    "core": "99",
    "drafter_memory": "none",
    "exact": "off",
    "handoff": "host",
    "markov_candidates": "8",
    "ngram_max": "8",
    "prefer": "latency",
    "random_weights": "true",
    "synthetic_acceptance": "0.5,0.25",
    "synthetic_siblings": "0.5,0.25",
    "widths": "1,4",
}
BESIDE = {
    "drafter_memory": ("--proposer", "ngram"),
    "synthetic_acceptance": ("--target.random-weights", "true"),
    "synthetic_siblings": ("--target.random-weights", "true", "--target.synthetic-acceptance", "0.5"),
}


def load(*flags: str) -> ClusterSettings:
    return settings.load(ClusterSettings, ("--model", "m", "--drafter", "d", *flags), {}, derived.check)


def text(group: Group, name: str) -> str:
    """Another value than the default, as a flag has it."""
    (default,) = (field.default for field in dataclasses.fields(group.of) if field.name == name)
    if name in SAMPLES:
        return SAMPLES[name]
    hint = typing.get_type_hints(group.of)[name]
    if typing.get_origin(hint) is typing.Literal:
        return str(next(word for word in typing.get_args(hint) if word != default))
    if isinstance(default, bool):
        return str(not default).lower()
    return f"{2 * default + 1:g}" if isinstance(default, int | float) else "debug"


def given(group: Group, name: str, tmp_path: Path) -> tuple[Any, Any]:
    """The setting as the service gets it, by default and when the controller is told another value."""
    extra = BESIDE.get(name, ())
    found = []
    for flags in ((), (f"--{group.prefix}.{name.replace('_', '-')}", text(group, name))):
        spec = pair_spec(load(*extra, *flags), 0, "paceline_pair", tmp_path)
        found.append(getattr({"target": spec.target, "drafter": spec.drafter}[group.prefix], name))
    return found[0], found[1]


@pytest.mark.parametrize(
    ("group", "name"),
    [pytest.param(group, name, id=f"{group.prefix}.{name}") for group in (TARGET, DRAFTER) for name in group.free],
)
def test_a_setting_of_a_service_reaches_it(group: Group, name: str, tmp_path: Path) -> None:
    default, told = given(group, name, tmp_path)
    assert told != default


@pytest.mark.parametrize("group", [TARGET, DRAFTER], ids=lambda group: group.prefix)
def test_what_is_not_passed_on_is_the_controllers_or_derived(group: Group) -> None:
    names = {field.name for field in dataclasses.fields(group.of)}
    mine = {field.name for field in dataclasses.fields(ClusterSettings)}
    assert group.own.keys() | group.decided.keys() <= names
    assert set(group.own.values()) <= mine
    for sources in group.decided.values():
        assert {word for part in sources.split(" and ") for word in part.split(", ")} <= mine


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--target.widths", "4,8"), "target: widths: must ascend from 1"),
        (("--target.widths", "one"), "target.widths: must be a whole number"),
        (("--target.handof", "host"), "target.handof: there is no such setting; did you mean --target.handoff?"),
        (("--target.handoff", "sideways"), "target: handoff: must be one of"),
        (("--target.handoff", "flags", "--placement", "cpu"), "target: handoff: flags order the streams of a GPU"),
        (("--target.grpc", "0.0.0.0:1"), "target.grpc: is derived from host"),
        (("--host", "10.0.0.7"), "target: grpc: over TCP anybody could call"),
        (("--host", "auto", "--session-secret", "short"), "target: session_secret: must have at least 16"),
        (("--drafter.insecure", "true"), "drafter.insecure: is derived from run_dir"),
        (("--drafter.ngram-max", "17"), "drafter: ngram_min and ngram_max must satisfy"),
    ],
)
def test_what_no_service_could_start_with_is_refused(
    flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        load(*flags)
    assert refused.value.code == 2
    assert capsys.readouterr().err.startswith(f"settings: {said}")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--dtype", "bfloat16"), "target: dtype: bfloat16 is not exact on a CPU"),
        (("--target.handoff", "flags"), "target: handoff: flags order the streams of a GPU"),
        (("--target.exact", "strict"), "target: exact: strict compares rows on a GPU only"),
    ],
)
def test_what_a_cpu_refuses_is_told_at_once_where_no_gpu_is(
    flags: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(derived, "gpus", lambda: (Gpu("H200", 141 << 30, 140 << 30),))
    load(*flags)
    monkeypatch.setattr(derived, "gpus", tuple)
    load(*flags, "--ray-address", "10.0.0.7:6379")  # other machines may have some
    with pytest.raises(SystemExit) as refused:
        load(*flags)
    assert refused.value.code == 2
    assert capsys.readouterr().err.startswith(f"settings: {said}")


def test_weights_of_eight_bits_are_served_by_the_drafter_and_planned_by_the_target(tmp_path: Path) -> None:
    spec = pair_spec(load("--drafter-weights", "int8"), 0, "paceline_pair", tmp_path)
    assert spec.drafter is not None
    assert (spec.drafter.weights, spec.target.drafter_weights) == ("int8", "int8")


def test_a_layout_is_told_to_both_sides(tmp_path: Path) -> None:
    spec = pair_spec(load("--drafter-sample-from-anchor", "false"), 0, "paceline_pair", tmp_path)
    assert spec.drafter is not None
    assert (spec.drafter.sample_from_anchor, spec.target.drafter_sample_from_anchor) == ("false", "false")


def test_without_a_host_a_pair_is_reached_by_sockets_of_its_own_folder(tmp_path: Path) -> None:
    settings = load("--base-port", "7000")
    target = derived.target_settings(settings, 1, tmp_path, "cpu")
    assert target.grpc == f"unix:{tmp_path}/pair-1/target.sock"
    assert (target.health, target.metrics) == ("127.0.0.1:0", "127.0.0.1:7004")


def test_with_a_host_a_target_wants_the_secret_and_the_names(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef\n")
    settings = load("--host", "10.0.0.7", "--session-secret-file", str(secret), "--target-client-names", "a,b")
    target = derived.target_settings(settings, 0, tmp_path, "cpu")
    assert (target.grpc, target.session_secret, target.session_secret_file) == ("10.0.0.7:0", "", str(secret))
    assert target.target_client_names == ("a", "b")
    assert "0123456789abcdef" not in repr(settings) + repr(target)


def test_what_only_a_gpu_can_do_is_accepted_where_ray_may_find_one() -> None:
    found = load("--target.handoff", "flags", "--ray-address", "10.0.0.7:6379")
    assert found.target_settings == {"handoff": "flags"}


@pytest.mark.parametrize("module", ["deploy.cluster", "deploy.up"])
def test_a_wrong_setting_ends_the_command_at_once_with_one_line(module: str) -> None:
    bound_s = within_s(3.0)
    began = time.monotonic()
    folders = ["--model", str(EMBEDDED / "target"), "--drafter", str(EMBEDDED / "drafter")]
    command = [sys.executable, "-m", module, *folders, "--target.widths", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    named = "target: widths" if module == "deploy.cluster" else "--target.widths"
    assert done.stderr == f"settings: {named}: must ascend from 1\n"
    assert kept(3.0, bound_s, time.monotonic() - began)


def test_the_controllers_settings_are_judged_without_ray_or_torch() -> None:
    program = "import sys, deploy.cluster.derived; print({'ray', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("config", "flags", "device", "expected"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, (), "cuda", "int8"),
        ({"quantization_config": {"quant_method": "fp8"}}, ("--drafter-weights", "dtype"), "cuda", "dtype"),
        ({"quantization_config": {"quant_method": "fp8"}}, (), "cpu", "auto"),
        ({"quantization_config": {"quant_method": "fp8"}}, ("--dtype", "float32"), "cuda", "auto"),
        ({}, (), "cuda", "int8"),
        (None, (), "cuda", "int8"),
        ({}, ("--proposer", "ngram"), "cuda", "auto"),
        ({}, (), "cpu", "auto"),
    ],
)
def test_a_target_of_bfloat16_on_a_gpu_is_drafted_for_in_eight_bits(
    config: dict[str, Any] | None, flags: tuple[str, ...], device: str, expected: str, tmp_path: Path
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(json.dumps(config))
    wanted = settings.load(ClusterSettings, ("--model", str(tmp_path), "--drafter", "d", *flags), {})
    assert derived.target_settings(wanted, 0, tmp_path, device).drafter_weights == expected
    assert derived.drafter_settings(wanted, 0, tmp_path, device).weights == expected
