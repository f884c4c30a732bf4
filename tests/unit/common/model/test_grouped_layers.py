"""Rows and weights of e4m3 codes: logits of the definition, equal bits in any company, and files that have others."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from services.common.kernels.linear.grouped.weight import (
    GroupedWeight,
    grouped,
    product_of_groups,
    rounded,
    rounded_rows,
)
from services.common.kernels.linear.packed_weight import Codes
from services.common.kernels.linear.product import product
from services.common.model import ModelError, load_target
from services.common.model.files.formats import open_checkpoint
from services.common.model.files.kept import GroupedCodes
from tests.support.packed_checkpoints import LAYOUTS, pack_checkpoint
from tests.support.tiny_checkpoints import TinyShape, write_tiny
from tests.unit.common.model.test_whole_layers import ours

COUNT, EMBEDDING = 24, "model.embed_tokens.weight"
SHAPE = TinyShape(hidden=128, inner=256, layers=2, heads=2, kv_heads=2, head_dim=64, taps=(0, 1))
RANDOM = torch.Generator().manual_seed(9)


class Grouped(nn.Module):
    """Each 128 numbers of a row by their largest as e4m3, times the file's numbers."""

    def __init__(self, weight_FD: Tensor) -> None:
        super().__init__()
        self.weight_FD = weight_FD

    def forward(self, x: Tensor) -> Tensor:
        groups = nn.functional.pad(x, (0, -x.shape[-1] % 128)).unflatten(-1, (-1, 128))
        scale = groups.abs().amax(-1, keepdim=True).clamp(min=1e-300) / 448
        rounded_TD = ((groups / scale).float().to(torch.float8_e4m3fn).double() * scale).flatten(-2)
        return torch.as_tensor(rounded_TD[..., : x.shape[-1]] @ self.weight_FD.T)


def made(tmp_path: Path, layout: str, shape: TinyShape = SHAPE, family: str = "qwen3") -> Path:
    folder = write_tiny(tmp_path, 3, shape, family=family, std=0.1, dtype=torch.bfloat16).target
    pack_checkpoint(folder, tmp_path / "twin", LAYOUTS[layout])
    return folder


def spread(*folders: Path) -> None:
    """Gives embeddings all digits of float32: ratios of numbers in bfloat16 often lie just between two codes."""
    factors = 1 + 0.01 * torch.rand(load_file(folders[0] / "model.safetensors")[EMBEDDING].shape, generator=RANDOM)
    for folder in folders:
        (folder / "manifest.sha256").unlink(missing_ok=True)
        tensors = load_file(folder / "model.safetensors")
        tensors[EMBEDDING] = tensors[EMBEDDING].float() * factors
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def by_transformers(folder: Path, twin: Path, ids: Tensor) -> Tensor:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(twin, dtype=torch.float64)
    tensors = load_file(folder / "model.safetensors")
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name != "lm_head":
            holder, _, own = name.rpartition(".")
            codes = tensors[f"{name}.weight"].double()
            scale = tensors[f"{name}.weight_scale_inv"].double().repeat_interleave(128, 0).repeat_interleave(128, 1)
            setattr(model.get_submodule(holder), own, Grouped(codes * scale[: len(codes), : codes.shape[1]]))
    with torch.no_grad():
        return torch.as_tensor(model(ids[None]).logits[0])


CUT_SHAPE = TinyShape(hidden=192, inner=320, layers=2, heads=3, kv_heads=3, head_dim=64, taps=(0, 1))
"""SmolLM2's kind: neither inputs nor lines come in whole 128s, so joined weights have blocks that begin anywhere."""


@pytest.mark.parametrize("shape", [SHAPE, CUT_SHAPE], ids=["whole", "cut"])
def test_logits_are_those_of_the_definition(shape: TinyShape, tmp_path: Path) -> None:
    folder = made(tmp_path, "fp8-bf16", shape)
    spread(folder, tmp_path / "twin")
    ids = torch.randint(2, 300, (COUNT,), generator=torch.Generator().manual_seed(5))
    logits = ours(load_target(folder, torch.float64, activations="fp8"), ids, COUNT)
    wide = ours(load_target(folder, torch.float64), ids, COUNT)
    theirs = by_transformers(folder, tmp_path / "twin", ids)
    # It turns heads by tables of float32, and a row may lie between two codes.
    assert float((logits - theirs).norm()) < 0.05 * float((wide - theirs).norm())


@pytest.mark.parametrize("shape", [SHAPE, CUT_SHAPE], ids=["whole", "cut"])
def test_rows_are_the_same_in_any_company(shape: TinyShape, tmp_path: Path) -> None:
    ids = torch.randint(2, 300, (COUNT,), generator=torch.Generator().manual_seed(5))
    narrow = load_target(made(tmp_path, "fp8-bf16", shape), torch.float32, activations="fp8")
    for coded in (False, True):
        whole = ours(narrow, ids, COUNT, coded)
        for width in (1, 7):
            assert torch.equal(ours(narrow, ids, width, coded), whole)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("fp8-f32", "has no codes of FP8 with scales of 128 x 128"),
        ("ct-fp8-lines", "has no codes of FP8 with scales of 128 x 128"),
        ("ct-int8", "has no codes of FP8 with scales of 128 x 128"),
    ],
)
def test_other_files_are_refused_with_what_to_take(layout: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        load_target(made(tmp_path, layout), activations="fp8")
    with pytest.raises(ModelError, match="twin: has no codes of FP8"):
        load_target(tmp_path / "twin", activations="fp8")


def test_models_with_experts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="for dense models without gates alone"):
        load_target(made(tmp_path, "fp8-bf16", family="qwen3_moe"), activations="fp8")


def test_a_gpu_refuses_cut_blocks_by_name(tmp_path: Path) -> None:
    source = open_checkpoint(made(tmp_path, "fp8-bf16", CUT_SHAPE))
    name, shape = "model.layers.0.self_attn.q_proj.weight", (192, 192)
    assert GroupedCodes(source).read_weight(name, shape, torch.bfloat16).shape == shape
    with pytest.raises(ModelError, match=r"q_proj\.weight has lines or inputs that are no multiple of 128"):
        GroupedCodes(source, whole=True).read_weight(name, shape, torch.bfloat16)


def weight_of(outputs: int, depth: int) -> GroupedWeight:
    found = rounded(torch.randn(outputs, depth, generator=RANDOM))
    assert found is not None
    return found


def test_a_group_is_off_by_half_a_step_of_its_codes_at_most() -> None:
    rows_TD = torch.randn(9, 512, generator=RANDOM) * torch.logspace(-6, 3, 9)[:, None]
    rows_TD[4, 128:256] = 0.0
    codes_TD, scale_TG = rounded_rows(rows_TD)
    number_TGD = codes_TD.float().unflatten(1, (-1, 128)) * scale_TG[..., None]
    off_TGD, wide_TGD = (number_TGD - rows_TD.unflatten(1, (-1, 128))).abs(), rows_TD.unflatten(1, (-1, 128)).abs()
    assert bool((off_TGD <= torch.maximum(wide_TGD * 2**-4, scale_TG[..., None] * 2**-10) * 1.001).all())
    assert scale_TG[4, 1] == 0.0
    assert not bool(number_TGD[4, 1].any())


def test_a_product_adds_exact_sums_of_groups_in_order_in_any_company() -> None:
    x_TD, weight = torch.randn(9, 384, generator=RANDOM), weight_of(256, 384)
    codes_TD, scale_TG = rounded_rows(x_TD)
    total_TF = torch.zeros(9, 256)
    for group in range(3):
        part = slice(group * 128, group * 128 + 128)
        sums_TF = codes_TD[:, part].double() @ weight.codes_FD[:, part].double().T
        total_TF += sums_TF.float() * (scale_TG[:, group, None] * weight.scale_BG[:, group].repeat_interleave(128))
    assert torch.equal(product_of_groups(x_TD, weight.codes_FD, weight.scale_BG), total_TF)
    assert torch.equal(product(weight)(x_TD), total_TF)
    alone = product(weight)(x_TD[3:4])
    x_TD[:3], x_TD[4:] = torch.nan, 1e30
    assert torch.equal(product(weight)(x_TD)[3:4], alone)


def test_scales_that_do_not_line_up_are_kept_by_line() -> None:
    codes_FD = torch.randn(192, 320, generator=RANDOM).to(torch.float8_e4m3fn)
    scale_BG = torch.rand(2, 3, generator=RANDOM)
    scale_FG = scale_BG.repeat_interleave(128, 0)[:192]
    weight = grouped(Codes(codes_FD, scale_FG), torch.float32)
    assert weight is not None
    assert not weight.whole
    both = weight.joined([weight])
    assert torch.equal(both.widened(), torch.cat((weight.widened(), weight.widened())))
    assert torch.equal(both.lines(100, 250).widened(), both.widened()[100:250])
    assert torch.equal(both.each(lambda lines: lines.flip(0)).widened(), both.widened().flip(0))
    scale_FG[130] *= 2
    assert grouped(Codes(codes_FD, scale_FG), torch.float32) is None


def test_lines_join_and_part_with_their_scales() -> None:
    first, second = weight_of(128, 256), weight_of(256, 256)
    both = first.joined([second])
    assert torch.equal(both.widened(), torch.cat((first.widened(), second.widened())))
    assert torch.equal(both.lines(128, 384).widened(), second.widened())
    turned = both.each(lambda lines: lines.unflatten(0, (3, 128)).flip(1).flatten(0, 1))
    assert torch.equal(turned.widened(), both.widened().unflatten(0, (3, 128)).flip(1).flatten(0, 1))
    with pytest.raises(ValueError, match="do not begin"):
        both.lines(64, 128)
    with pytest.raises(ValueError, match="change places"):
        both.each(lambda lines: lines.roll(1, 0))
    scale_FG = torch.ones(128, 2)
    scale_FG[5, 1] = 2.0
    assert grouped(Codes(first.codes_FD, scale_FG), torch.float32) is None
