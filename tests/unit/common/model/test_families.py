"""A family is found by its architecture; a spec says what its layers are and which tensors they ask for."""

from collections.abc import Callable
from dataclasses import replace
from inspect import Signature, signature
from pathlib import Path

import pytest

from services.common.model import ModelError, ModelSpec, families
from services.common.model.families import FAMILIES, Family, open_family, read_target_spec
from services.common.model.spec import Attention, Dense, LayerSpec, Rope
from services.common.model.weights.weights import elements, layer_shapes, model_shapes
from tests.support.tiny_checkpoints import TinyShape, write_tiny

ATTENTION = Attention(heads=4, kv_heads=2, head_dim=16, rope=Rope(10000.0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("pair"), shape=TinyShape(layers=3, taps=(0, 1))).target


def test_a_configuration_becomes_a_spec(folder: Path) -> None:
    assert read_target_spec(folder) == ModelSpec(
        vocab_size=320, hidden_size=32, layers=(LayerSpec(ATTENTION, Dense(64)),) * 3, max_positions=2048,
        norm_eps=1e-6, tied=True, eos_token_ids=(0,),
    )  # fmt: skip


def test_a_family_is_found_by_its_architecture(folder: Path) -> None:
    family, _ = open_family(folder)
    assert FAMILIES[family.ARCHITECTURE] is family


def test_every_file_of_the_folder_is_a_family() -> None:
    files = {file.stem for file in Path(families.__path__[0]).glob("*.py")} - {"__init__"}
    assert {family.__name__.rpartition(".")[2] for family in FAMILIES.values()} == files  # type: ignore[attr-defined]
    for architecture, family in FAMILIES.items():
        assert architecture.endswith(("ForCausalLM", "ForConditionalGeneration"))
        for name in ("read_spec", "read_weights"):
            assert signature(getattr(family, name)) == _without_self(getattr(Family, name))


def _without_self(method: Callable[..., object]) -> Signature:
    first, *rest = signature(method).parameters.values()
    assert first.name == "self"
    return signature(method).replace(parameters=rest)


def test_an_unknown_architecture_is_refused_with_those_that_are_known(folder: Path, tmp_path: Path) -> None:
    text = (folder / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace("Qwen3ForCausalLM", "OtherForCausalLM"))
    with pytest.raises(ModelError, match=r"architectures: \['OtherForCausalLM'\] is not supported, only .*Qwen3For"):
        read_target_spec(tmp_path)


@pytest.mark.parametrize(
    ("attention", "more", "numbers"),
    [
        (ATTENTION, {"q_norm.weight", "k_norm.weight"}, 2 * 16),
        (replace(ATTENTION, qk_norm=False), set(), 0),
        (replace(ATTENTION, qk_norm=False, bias=True), {"q_proj.bias", "k_proj.bias", "v_proj.bias"}, 8 * 16),
    ],
    ids=["head norms", "neither", "bias"],
)
def test_a_layer_asks_for_the_tensors_of_its_record(attention: Attention, more: set[str], numbers: int) -> None:
    shapes = layer_shapes(LayerSpec(attention, Dense(64)), 32, "l")
    own = {name.removeprefix("l.self_attn.") for name in shapes if name.startswith("l.self_attn.")}
    assert own == {"q_proj.weight", "k_proj.weight", "v_proj.weight", "o_proj.weight"} | more
    assert elements(shapes) == 2 * 32 + 32 * (8 + 4) * 16 + 3 * 32 * 64 + numbers


def test_a_head_of_its_own_is_asked_for(folder: Path) -> None:
    spec = read_target_spec(folder)
    assert model_shapes(replace(spec, tied=False)).keys() - model_shapes(spec).keys() == {"lm_head.weight"}


def test_layers_of_different_attention_are_refused(folder: Path) -> None:
    spec = read_target_spec(folder)
    other = LayerSpec(replace(ATTENTION, head_dim=8), Dense(64))
    with pytest.raises(ModelError, match="different attention"):
        _ = replace(spec, layers=(*spec.layers, other)).attention
