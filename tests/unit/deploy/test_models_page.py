"""The table of models is made from their configurations."""

from dataclasses import replace

import pytest

from deploy.models_page import PAGE, kv, need, page, published, row

NUMBERS = {
    "Qwen/Qwen3-0.6B": 0.596,
    "Qwen/Qwen3-8B": 8.19,
    "Qwen/Qwen2.5-7B-Instruct": 7.62,
    "Qwen/Qwen3-30B-A3B": 30.5,
}
NUMBERS |= {"meta-llama/Llama-3.1-8B-Instruct": 8.03, "meta-llama/Llama-3.3-70B-Instruct": 70.6}
"""Parameters in billions, as the models' cards tell them."""


def test_the_page_is_that_of_the_configurations() -> None:
    assert PAGE.read_text() == page(), "run python -m deploy.models_page"


@pytest.mark.parametrize("name", NUMBERS)
def test_sizes_are_those_of_the_models_cards(name: str) -> None:
    model = next(one for one in published() if one.name == name)
    assert need(model).target / 1e9 == pytest.approx(NUMBERS[name], rel=0.005)


def test_a_drafter_takes_memory_and_context() -> None:
    (model,) = (one for one in published() if one.name == "Qwen/Qwen3-4B")
    assert need(model).drafter > 0
    assert kv(model) == "0.17 GB" and kv(replace(model, drafter="")) == "0.15 GB"
    assert row(model).endswith("| `paceline serve Qwen/Qwen3-4B --drafter z-lab/Qwen3-4B-DFlash-b16` |")
