"""Seeded bugs of sliding windows and of families that have them: what a row sees, and by which table it turns."""

from tests.mutants.mutation import Mutant

CPU = "services.common.model.cpu.cpu"
MASK = "services.common.kernels.span_attention.span"
SPAN = "services.common.kernels.span_attention.span"

_WINDOWS = "tests/unit/common/model/test_windows.py::"
_FAMILIES = "tests/unit/common/model/families/"
_PARITY = f"{_FAMILIES}test_gemma3.py::test_logits_are_those_of_transformers"
_LAGUNA = f"{_FAMILIES}test_laguna.py::test_logits_are_those_of_transformers"

SLIDING = (
    Mutant(
        "window-one-token-too-wide",
        MASK,
        "near_BWT = places_B1T > positions_BW[:, :, None] - mask.window",
        "near_BWT = places_B1T >= positions_BW[:, :, None] - mask.window",
        _PARITY,
    ),
    Mutant(
        "window-read-one-token-too-late",
        SPAN,
        "first_B1 = (lengths_B - window + 1).clamp(min=0)[:, None]",
        "first_B1 = (lengths_B - window + 2).clamp(min=0)[:, None]",
        f"{_WINDOWS}test_rows_are_the_same_at_any_width_and_after_rejections",
    ),
    Mutant(
        "window-read-from-the-beginning",
        SPAN,
        "first_B1 = (lengths_B - window + 1).clamp(min=0)[:, None]",
        "first_B1 = torch.zeros_like(lengths_B)[:, None]",
        f"{_WINDOWS}test_what_is_below_the_window_of_the_first_row_may_be_lost",
    ),
    Mutant(
        "rotary-table-of-the-other-kind",
        CPU,
        "places.rotations[self.group], self.group",
        "places.rotations[0], self.group",
        _PARITY,
    ),
    Mutant(
        "mask-of-the-first-kind",
        CPU,
        "places.rotations[self.group], self.group * len(places.counts)",
        "places.rotations[self.group], 0 * len(places.counts)",
        _PARITY,
    ),
    Mutant(
        "padding-sees-nothing",
        SPAN,
        "torch.minimum(span.positions_BW, span.reach_B[:, None] - 1)",
        "span.positions_BW",
        f"{_WINDOWS}test_rows_of_padding_see_what_the_last_real_one_sees",
    ),
    Mutant(
        "values-without-their-norm",
        CPU,
        "if attention.v_norm:",
        "if attention.gated:",
        f"{_FAMILIES}test_gemma4.py::test_logits_are_those_of_transformers",
    ),
    Mutant(
        "pairs-that-stand-still-are-scaled",
        "services.common.kernels.rope.frequencies",
        "* own.scale, rest, value=1.0)",
        "* own.scale, rest, value=1.2)",
        _LAGUNA,
    ),
    Mutant(
        "bias-for-the-choice-of-an-expert-weighs-it-too",
        "services.common.kernels.experts.reference",
        "weights_TK = rates_TE.gather(",
        "weights_TK = (rates_TE + bias_E).gather(",
        _LAGUNA,
    ),
)
