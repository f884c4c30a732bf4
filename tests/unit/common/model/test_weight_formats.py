"""Packed weights: numbers of every layout against formulas worked out apart and the code of their libraries."""

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from services.common.model import ModelError, load_target
from services.common.model.drafters.context import load_context
from services.common.model.families import read_target_spec
from services.common.model.fields.fields import Fields
from services.common.model.files import widen
from services.common.model.files.checkpoint import Checkpoint
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.manifest import write_manifest
from services.common.model.files.weight_formats import FORMATS, folder_format, read_format
from services.common.model.files.widened import WidenedCheckpoint
from services.common.model.weights.weights import model_shapes
from tests.support.host_blocks import host_blocks
from tests.support.packed_checkpoints import LAYOUTS, bfloat16_once, pack_checkpoint, packable
from tests.support.tiny_checkpoints import HYBRIDS, TinyShape, write_tiny

UP = "model.layers.1.mlp.up_proj"
IDLE = (".bias", "input_scale", "input_global_scale")


def made(tmp_path: Path, layout: str, family: str = "qwen3") -> tuple[Path, Path, dict[str, Tensor]]:
    """Folders of a packed checkpoint and of its plain twin, and the twin's weights of products."""
    shape = TinyShape() if family in HYBRIDS else TinyShape(layers=2, taps=(0, 1))
    folder, twin = write_tiny(tmp_path, shape=shape, family=family, std=0.1).target, tmp_path / "twin"
    return folder, twin, pack_checkpoint(folder, twin, LAYOUTS[layout])


def edit(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    rewrite(folder, tensors)


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> None:
    save_file(tensors, folder / "model.safetensors")
    write_manifest(folder)


def read_up(folder: Path) -> Tensor:
    checkpoint, shape = open_checkpoint(folder), TinyShape()
    checkpoint.refuse_other_than(model_shapes(read_target_spec(folder)))
    return checkpoint.read(f"{UP}.weight", (shape.inner, shape.hidden), torch.float32)


def test_rounding_of_the_reference_is_to_nearest_and_half_to_even() -> None:
    exact = torch.randn(4096).to(torch.bfloat16).double()
    step = (exact.float().view(torch.int32) + 0x10000).view(torch.float32).double() - exact
    for share, away in ((0.49, False), (0.51, True)):
        rounded = bfloat16_once((exact + share * step).numpy()).double()
        assert torch.equal(rounded, exact + step if away else exact)
    even = (exact.float().view(torch.int32) & 0x10000) == 0
    assert torch.equal(bfloat16_once((exact + 0.5 * step).numpy()).double(), torch.where(even, exact, exact + step))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_are_those_of_the_formula(
    layout: str, tmp_path: Path, report_counts: Callable[[str, int], None]
) -> None:
    folder, _, plain = made(tmp_path, layout)
    checkpoint = open_checkpoint(folder)
    for name, expected_FD in plain.items():
        for dtype in (torch.bfloat16, torch.float32):
            value_FD = checkpoint.read(name, tuple(expected_FD.shape), dtype)
            assert value_FD.dtype == dtype
            assert torch.equal(value_FD, expected_FD.to(dtype)), name
    assert set(plain) <= checkpoint.names
    report_counts("weights_compared", sum(value.numel() for value in plain.values()))


def decompressor(config: Mapping[str, Any]) -> Callable[[dict[str, Tensor]], Tensor]:
    """What compressed-tensors makes of the tensors of one weight, by a checkpoint's configuration."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme

    scheme = QuantizationScheme(**config["config_groups"]["group_0"])
    library = BaseCompressor.get_value_from_registry(config["format"])
    return lambda parts: library.decompress(parts, scheme)["weight"]


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.oracle == "compressed-tensors"])
def test_numbers_are_those_of_compressed_tensors(layout: str, tmp_path: Path) -> None:
    folder, _, plain = made(tmp_path, layout)
    config, tensors = LAYOUTS[layout].config, load_file(folder / "model.safetensors")
    widened = decompressor(config)
    for name, value_FD in plain.items():
        prefix = name.removesuffix("weight")
        parts = {end.removeprefix(prefix): part for end, part in tensors.items() if end.startswith(prefix)}
        theirs_FD = widened(parts)
        assert torch.equal(theirs_FD.to(torch.bfloat16), value_FD), name


def test_numbers_of_nvfp4_are_near_those_of_compressed_tensors(tmp_path: Path) -> None:
    """It rounds scales, products and results apart; ours are rounded once."""
    folder, _, plain = made(tmp_path, "ct-nvfp4")
    config, tensors = LAYOUTS["ct-nvfp4"].config, load_file(folder / "model.safetensors")
    prefix = f"{UP}."
    parts = {end.removeprefix(prefix): part for end, part in tensors.items() if end.startswith(prefix)}
    theirs_FD, ours_FD = decompressor(config)(parts).float(), plain[f"{UP}.weight"].float()
    assert bool(((theirs_FD - ours_FD).abs() <= 2**-7 * ours_FD.abs()).all())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_do_not_depend_on_how_many_are_widened_at_a_time(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _, plain = made(tmp_path, layout)
    monkeypatch.setattr(widen, "_AT_ONCE", 7 * TinyShape().hidden + 1)
    assert torch.equal(read_up(folder), plain[f"{UP}.weight"].float())


@pytest.mark.parametrize("layout", [name for name, layout in LAYOUTS.items() if layout.oracle == "transformers"])
def test_numbers_are_those_of_transformers(layout: str, tmp_path: Path) -> None:
    """It takes only blocks that divide a weight, so the weight is filled up to whole blocks."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    folder, _, plain = made(tmp_path, layout)
    tensors, block = load_file(folder / "model.safetensors"), LAYOUTS[layout].config["weight_block_size"]
    for name, value_FD in plain.items():
        codes_FD = tensors[name]
        scale = tensors.get(f"{name}_scale_inv", tensors.get(f"{name}_scale"))
        shape = codes_FD.shape if block is None else [n * size for n, size in zip(scale.shape, block, strict=True)]
        filled = torch.zeros(shape, dtype=torch.uint8)
        filled[: codes_FD.shape[0], : codes_FD.shape[1]] = codes_FD.view(torch.uint8)
        scale = scale.view(1, 1) if block is None else scale
        theirs = Fp8Dequantize(None)._dequantize_one(filled.view(torch.float8_e4m3fn), scale, torch.bfloat16)
        assert torch.equal(theirs[: codes_FD.shape[0], : codes_FD.shape[1]], value_FD), name


@pytest.mark.parametrize(
    "family", ["llama", "qwen2", "qwen3", "qwen3_5", "qwen3_5_text", "qwen3_next", "qwen3_moe", "qwen3_5_moe"]
)
def test_every_family_scores_as_its_twin(family: str, tmp_path: Path) -> None:
    folder, twin, _ = made(tmp_path, "fp8-bf16", family)
    (packed, plain) = (load_target(one, torch.float32) for one in (folder, twin))
    assert packed.elements == plain.elements
    for one, other in zip(packed_tensors(packed), packed_tensors(plain), strict=True):
        assert torch.equal(one, other)


def packed_tensors(target: Any) -> list[Tensor]:
    """All tensors of a model: of its blocks and tables."""
    blocks = host_blocks(target)
    return [target.embed_VD, target.lm_head_VD, *blocks.parameters(), *blocks.buffers()]


def test_sizes_are_told_before_weights_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder, twin, _ = made(tmp_path, "ct-int4")
    with caplog.at_level(logging.INFO):
        target = load_target(folder, torch.bfloat16)
        load_target(twin, torch.bfloat16)
    (told,) = (vars(record) for record in caplog.records if record.getMessage() == "weights are widened")
    assert told["format"] == "pack-quantized, 4 bits, scales of 1 x 16"
    assert told["bytes"] == 2 * target.elements
    assert told["file_bytes"] == (folder / "model.safetensors").stat().st_size


def test_a_packed_head_is_widened(tmp_path: Path) -> None:
    folder = write_tiny(tmp_path, changes={"tie_word_embeddings": False}).target
    plain = pack_checkpoint(folder, tmp_path / "twin", LAYOUTS["gptq"])
    assert "lm_head.weight" not in plain
    table = load_file(folder / "model.safetensors")["lm_head.weight"]
    parts, numbers = LAYOUTS["gptq"].pack((table.shape[0], table.shape[1]), np.random.default_rng(1))

    def pack_head(tensors: dict[str, Tensor]) -> None:
        del tensors["lm_head.weight"]
        tensors.update({f"lm_head.{end}": part for end, part in parts.items()})

    edit(folder, pack_head)
    assert torch.equal(load_target(folder).lm_head_VD, bfloat16_once(numbers).float())


def test_a_packed_drafter_is_read(tmp_path: Path) -> None:
    pair = write_tiny(tmp_path, std=0.1)
    plain = pack_checkpoint(pair.drafter, tmp_path / "twin", LAYOUTS["awq"])
    assert plain
    target = load_target(pair.target)
    packed, twin = (load_context(folder, target) for folder in (pair.drafter, tmp_path / "twin"))
    assert packed.elements == twin.elements


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_lost_part_is_named(layout: str, tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, layout)
    held = [name for name in load_file(folder / "model.safetensors") if name.startswith(f"{UP}.")]
    needed = [name for name in held if not name.endswith(("weight_shape", *IDLE))]
    if LAYOUTS[layout].config.get("sym"):
        needed.remove(f"{UP}.qzeros")
    if layout.startswith("gptq") and not LAYOUTS[layout].config["desc_act"]:
        needed.remove(f"{UP}.g_idx")
    for name in needed:
        kept = load_file(folder / "model.safetensors")
        rewrite(folder, {end: part for end, part in kept.items() if end != name})
        with pytest.raises(ModelError, match=rf"{UP}\.\w+ (is missing|has dtype|has shape)"):
            read_up(folder)
        rewrite(folder, kept)
    read_up(folder)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_of_another_shape_or_type_are_named(layout: str, tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, layout)
    whole = load_file(folder / "model.safetensors")
    for name in [
        name
        for name in whole
        if name.startswith(f"{UP}.") and not name.endswith((".bias", "input_scale", "input_global_scale"))
    ]:
        value = whole[name]
        wrong = value.view(-1)[:-1].clone() if value.numel() > 1 else value.view(-1).repeat(2)
        for other in (wrong, torch.zeros(value.shape, dtype=torch.int16)):
            rewrite(folder, whole | {name: other})
            with pytest.raises(ModelError, match=rf"tensor {name} has (shape|dtype) .*, expected"):
                read_up(folder)
        rewrite(folder, whole)


@pytest.mark.parametrize("layout", ["fp8-bf16", "ct-fp8-lines", "awq", "gptq", "ct-nvfp4"])
def test_scales_that_are_no_numbers_are_named(layout: str, tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, layout)
    end = next(end for end in ("weight_scale_inv", "weight_global_scale", "scales", "weight_scale")
               if f"{UP}.{end}" in load_file(folder / "model.safetensors"))  # fmt: skip
    edit(folder, lambda tensors: tensors[f"{UP}.{end}"].view(-1)[:1].fill_(float("nan")))
    with pytest.raises(ModelError, match=rf"{UP} holds NaN, infinity"):
        read_up(folder)


def test_a_scale_of_infinity_is_named_where_numbers_are_divided_by_it(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, "ct-nvfp4")
    edit(folder, lambda tensors: tensors[f"{UP}.weight_global_scale"].fill_(float("inf")))
    with pytest.raises(ModelError, match=rf"{UP} holds NaN, infinity or the like in its weight_global_scale"):
        load_target(folder)


def test_words_of_a_single_column_are_unpacked() -> None:
    words_1W = torch.tensor([[0x10, 0x32, 0x54]], dtype=torch.int32)
    assert widen.unpacked(words_1W.t(), 4, 2).tolist() == [[0, 1], [2, 3], [4, 5]]


def test_two_scales_of_a_tensor_are_refused(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, "fp8-tensor")
    edit(folder, lambda tensors: tensors.update({f"{UP}.weight_scale_inv": tensors[f"{UP}.weight_scale"].clone()}))
    with pytest.raises(ModelError, match="weight_scale and weight_scale_inv stand beside one weight"):
        load_target(folder)


@pytest.mark.parametrize("name", ["weight", "lm_head.weight_scale", "model.layers.9.mlp.up_proj.weight_scale"])
def test_a_part_without_the_others_is_told_with_what_the_file_says(name: str, tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, "fp8-bf16")
    if name == "weight":
        edit(folder, lambda tensors: tensors.pop(f"{UP}.weight"))
    else:
        edit(folder, lambda tensors: tensors.update({name: torch.ones(1)}))
    with pytest.raises(ModelError, match="the configuration says FP8, scales of 128 x 128") as caught:
        load_target(folder)
    assert "need quantization_config" not in str(caught.value)


def test_biases_of_zeros_beside_packed_weights_are_left_alone_and_others_refused(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, "gptq")
    assert f"{UP}.bias" in load_file(folder / "model.safetensors")
    load_target(folder)
    edit(folder, lambda tensors: tensors[f"{UP}.bias"].view(-1)[3:4].fill_(0.5))
    with pytest.raises(ModelError, match=rf"{UP}\.bias is not part of this architecture"):
        load_target(folder)


@pytest.mark.parametrize(("layout", "end"), [("fp8-bf16", "weight_scale_inv"), ("gptq", "qweight"), ("awq", "scales")])
def test_a_packed_norm_is_refused(layout: str, end: str, tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, layout)
    edit(folder, lambda tensors: tensors.update({f"model.norm.{end}": tensors.pop("model.norm.weight")}))
    with pytest.raises(ModelError, match=r"model\.norm is packed, but only matrices may be"):
        load_target(folder)


def test_columns_out_of_order_need_desc_act(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, "gptq")
    edit(folder, lambda tensors: tensors[f"{UP}.g_idx"].copy_(tensors[f"{UP}.g_idx"].flip(0)))
    with pytest.raises(ModelError, match=rf"{UP}\.g_idx: columns are out of order"):
        load_target(folder)


@pytest.mark.parametrize(("layout", "end"), [("gptq-ordered", "g_idx"), ("ct-int4-ordered", "weight_g_idx")])
@pytest.mark.parametrize("group", [-1, 2])
def test_a_column_of_no_group_is_named(layout: str, end: str, group: int, tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, layout)
    edit(folder, lambda tensors: tensors[f"{UP}.{end}"].view(-1)[5:6].fill_(group))
    with pytest.raises(ModelError, match=rf"{UP}\.{end}: names a group that there is not"):
        load_target(folder)


def test_groups_that_do_not_divide_a_weight_are_named(tmp_path: Path) -> None:
    folder, _, _ = made(tmp_path, "awq")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["group_size"] = 24
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    with pytest.raises(ModelError, match=r"q_proj: 32 columns do not divide into parts of 24"):
        load_target(folder)


def test_packed_tensors_without_a_configuration_are_refused(tmp_path: Path) -> None:
    folder, twin, _ = made(tmp_path, "fp8-bf16")
    (folder / "config.json").write_bytes((twin / "config.json").read_bytes())
    write_manifest(folder)
    with pytest.raises(ModelError, match=r"weight_scale_inv is not part of this architecture"):
        load_target(folder)


def test_names_of_modules_choose_their_group(tmp_path: Path) -> None:
    """Two groups, one by an expression and one for all other linear modules."""
    folder = write_tiny(tmp_path).target
    plain = pack_checkpoint(folder, tmp_path / "twin", LAYOUTS["ct-int4"])
    config = json.loads((folder / "config.json").read_text())
    own = config["quantization_config"]["config_groups"]
    own["group_1"] = {"targets": ["re:.*layers\\.1\\..*"], "weights": own["group_0"]["weights"] | {"num_bits": 8}}
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    checkpoint = open_checkpoint(folder)
    for name, value_FD in plain.items():
        if ".layers.1." not in name:
            assert torch.equal(checkpoint.read(name, tuple(value_FD.shape), torch.bfloat16), value_FD)
    with pytest.raises(ModelError, match=r"layers\.1\.\S+ has shape"):
        load_target(folder)


@pytest.mark.parametrize(("targets", "bits"), [
    ((["Linear"], ["re:.*layers\\.1\\..*"]), 8),
    ((["re:.*up_proj"], ["model.layers.1.mlp.up_proj"]), 8),
    ((["re:z|.*up_proj"], ["re:.*up_proj"]), 8),
    ((["re:.*up_proj"], ["re:z|.*up_proj"]), 4),
    ((["re:.*up_proj"], ["re:.*up_proj"]), 8),
    ((["Linear"], ["re:model.language_model.layers.*"]), 8),
    ((["Linear"], ["re:.*up_projection"]), 4),
    ((["Embedding"], ["Linear"]), 8),
])  # fmt: skip
def test_the_group_of_a_module_is_the_librarys(targets: tuple[list[str], list[str]], bits: int) -> None:
    """Names come before expressions in their order, whatever the file's, then kinds; the last of equal ones counts."""
    from compressed_tensors.utils.match import match_targets

    own = LAYOUTS["ct-int4"].config["config_groups"]["group_0"]
    four, eight = (own | {"targets": names} for names in targets)
    config = dict(LAYOUTS["ct-int4"].config) | {"config_groups": {
        "group_0": four, "group_1": eight | {"weights": own["weights"] | {"num_bits": 8}},
    }}  # fmt: skip
    found = read_format(Fields(Path("config.json"), {"quantization_config": config}))
    assert found is not None
    assert found.parts(UP, (64, 32))["weight_packed"].shape == (64, 32 * bits // 32)
    theirs = match_targets(UP, torch.nn.Linear(1, 1), [*targets[0], *targets[1]])
    if theirs and "language_model" not in str(targets):
        assert (theirs[0] in targets[1]) == (bits == 8)


def test_a_zero_point_of_a_group_without_is_refused(tmp_path: Path) -> None:
    """One group has zero points: a weight of the other would be read without its own."""
    folder, _, _ = made(tmp_path, "ct-int4-asymmetric")
    config = json.loads((folder / "config.json").read_text())
    groups = config["quantization_config"]["config_groups"]
    groups["group_1"] = {"targets": ["re:.*up_proj"], "weights": groups["group_0"]["weights"] | {"symmetric": True}}
    (folder / "config.json").write_text(json.dumps(config))
    write_manifest(folder)
    with pytest.raises(ModelError, match=r"up_proj\.weight_zero_point stands beside a weight that has none"):
        load_target(folder)


def test_headers_alone_give_shapes(tmp_path: Path) -> None:
    """What looks at a checkpoint before it is loaded gives tensors without numbers."""

    class Headers(Checkpoint):
        def stored(self, name: str, shape: tuple[int, ...], dtypes: frozenset[torch.dtype]) -> Tensor:
            return super().stored(name, shape, dtypes).to("meta")

    folder, _, plain = made(tmp_path, "awq")
    weight_format = folder_format(folder)
    assert weight_format is not None
    source = WidenedCheckpoint(Headers(folder), weight_format)
    for name, value_FD in plain.items():
        assert source.read(name, tuple(value_FD.shape), torch.bfloat16).shape == value_FD.shape


def test_a_format_is_one_file() -> None:
    folder = Path(__file__).parents[4] / "services" / "common" / "model" / "files" / "weight_formats"
    assert {path.stem for path in folder.glob("[!_]*.py")} == {method.replace("-", "_") for method in FORMATS}
    assert {layout.config["quant_method"] for layout in LAYOUTS.values()} == set(FORMATS)
    assert list(packable({"model.embed_tokens.weight": torch.zeros(2, 2), f"{UP}.weight": torch.zeros(2, 2)})) == [UP]
