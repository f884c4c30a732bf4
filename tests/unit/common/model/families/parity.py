"""A family's logits beside those of transformers."""

from pathlib import Path

import torch

from services.common.model import load_target
from tests.unit.common.model.pairs import BLOCK_SIZE, forward, ids_like, poisoned_states, span_at, tables


def deviation(folder: Path, length: int, beginning: int = 0) -> float:
    """Largest difference of the logits after `length` tokens, from `beginning` on, by the largest logit; float32."""
    from transformers import AutoModelForCausalLM

    reference, told = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), f"the file holds other tensors than transformers reads: {told}"
    target, ids = load_target(folder), ids_like(2, length)
    blocks = -(-length // BLOCK_SIZE)
    with torch.no_grad():
        expected_BWV = reference.eval()(ids).logits
    rows, states = span_at(tables([blocks, blocks], blocks), [0, 0], length), poisoned_states(target, 2 * blocks + 1)
    hidden_BWD, _ = forward(target, ids, rows, states)
    error_BWV = (target.logits(hidden_BWD) - expected_BWV)[:, beginning:]
    return float(error_BWV.abs().max() / expected_BWV.abs().max())
