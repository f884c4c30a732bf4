"""Judges a divergence in float32: the model in float64, fed the common prefix in one forward, must show a near tie."""

from collections.abc import Sequence
from pathlib import Path

import torch

from services.common.device.noise import gumbel
from services.common.kernels.span_attention import plan_span
from services.common.model import load_target
from services.common.model.states.states import Part, Rows
from services.target.core.request import RequestSpec

EXCUSED_GAP = 1e-5
BLOCK = 16


class Oracle:
    """Scores of the next token after a prefix, `[V]` float64, with the noise of the request added."""

    def __init__(self, target: Path) -> None:
        self._model = load_target(target, dtype=torch.float64, device="cpu")

    @torch.inference_mode()
    def logits(self, prefix: Sequence[int]) -> torch.Tensor:
        """Raw logits after each token of the prefix, `[T, V]`; a fresh cache and one forward."""
        blocks = -(-len(prefix) // BLOCK)
        table_BN = torch.arange(1, blocks + 1, dtype=torch.int32).unsqueeze(0)
        span = plan_span(table_BN, torch.zeros(1, dtype=torch.int64), len(prefix), BLOCK)
        rows = Rows(Part(span, torch.zeros(1, dtype=torch.int64)))
        states = self._model.new_states(blocks + 1, BLOCK)
        return self._model.logits(self._model.forward(torch.tensor(prefix), rows, states)[0])

    @torch.inference_mode()
    def scores(self, prefix: Sequence[int], spec: RequestSpec) -> torch.Tensor:
        """Perturbed scores of the token after the prefix; only temperature and seed of the request count."""
        logits_V = self.logits(prefix)[-1]
        if spec.sampling.greedy:
            return logits_V
        seed_B, position_BW = torch.tensor([spec.sampling.seed]), torch.tensor([[len(prefix)]])
        noise_V = gumbel(seed_B, position_BW, logits_V.shape[0], torch.float64)[0, 0]
        return logits_V / spec.sampling.temperature + noise_V

    def excuses(self, spec: RequestSpec, expected: Sequence[int], got: Sequence[int]) -> bool:
        """True when the first divergence is a near tie of the two best scores, at most 1e-5 apart."""
        place = next((i for i, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]), None)
        if place is None:
            return False
        best = self.scores([*spec.token_ids, *expected[:place]], spec).topk(2)
        near = float(best.values[0] - best.values[1]) <= EXCUSED_GAP
        return near and {expected[place], got[place]} == set(best.indices.tolist())
