"""Seeded bugs of sliding windows: what a row sees, by which table it turns, and whose mask a layer has."""

from tests.mutants.mutation import Mutant

CPU = "services.common.model.cpu"
MASK = "services.common.kernels.span_attention.mask"
SPAN = "services.common.kernels.span_attention.span"

_WINDOWS = "tests/unit/common/model/test_windows.py::"
_PARITY = "tests/unit/common/model/families/test_gemma3.py::test_logits_are_those_of_transformers"

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
)
