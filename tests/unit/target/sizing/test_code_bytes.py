"""How much of a pair's memory codes and their numbers may take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from services.common.serving import settings
from services.target.settings import TargetSettings
from services.target.sizing.memory_terms import code_bytes

GPU = torch.device("cuda")


def loaded(*flags: str) -> TargetSettings:
    return settings.load(TargetSettings, ("--model", "m", *flags), {})


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), {8: 400, 4: 400}),
        (("--fp8-products", "true"), {8: 0, 4: 400}),
        (("--fp8-products", "false"), {4: 400}),
        (("--fp8-products", "auto", "--int4-products", "true"), {8: 400, 4: 0}),
        (("--fp8-products", "false", "--int4-products", "false"), {}),
        (("--memory-bytes", "600"), {8: 300, 4: 300}),
    ],
)
def test_auto_leaves_half_of_a_pairs_memory_to_keys_and_values(
    flags: tuple[str, ...], expected: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1, 1000))
    wanted: Any = loaded("--memory-fraction", "0.8", *flags)
    assert code_bytes(wanted, GPU) == expected
    assert code_bytes(wanted, torch.device("cpu")) == {}, "no kernel multiplies by codes there"


@pytest.mark.parametrize(("written", "read"), [("true", "true"), ("false", "false"), ('"auto"', "auto")])
def test_a_choice_may_be_written_as_tomls_own_word(written: str, read: str, tmp_path: Path) -> None:
    file = tmp_path / "target.toml"
    file.write_text(f"fp8_products = {written}\ndrafter_sample_from_anchor = {written}\n")
    found = loaded("--config", str(file))
    assert (found.fp8_products, found.drafter_sample_from_anchor) == (read, read)
