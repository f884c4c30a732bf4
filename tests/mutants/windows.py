"""Seeded bugs of sliding windows and of families that have them: what a row sees, and by which table it turns."""

from tests.mutants.mutation import Mutant

CPU = "services.common.model.cpu.cpu"
MASK = "services.common.kernels.span_attention.span"
SPAN = "services.common.kernels.span_attention.span"
HOST_SPAN = "services.common.kernels.span_attention.host_span"

PLACES = "services.target.cache.windows"

_PLACES = "tests/unit/target/cache/test_windows.py::"
_WINDOWS = "tests/unit/common/model/test_windows.py::"
_FAMILIES = "tests/unit/common/model/families/"
_PARITY = f"{_FAMILIES}test_gemma3.py::test_logits_are_those_of_transformers"
_LAGUNA = f"{_FAMILIES}test_laguna.py::test_logits_are_those_of_transformers"

SLIDING = (
    Mutant(
        "places-dropped-a-block-too-early",
        PLACES,
        "first, stop = max(0, start + 1 - self.window) // self._size, -(-end // self._size)",
        "first, stop = max(0, start + 1 - self.window) // self._size + 1, -(-end // self._size)",
        "tests/unit/target/scheduling/test_scheduler_machine.py",
    ),
    Mutant(
        "a-hit-without-the-last-window",
        PLACES,
        "if run >= count - max(0, count * self._size + 1 - self.window) // self._size:",
        "if run >= 1:",
        f"{_PLACES}test_reached_counts_blocks_whose_last_window_has_places",
    ),
    Mutant(
        "admission-without-the-window",
        PLACES,
        "return self._taken + self._most(request) <= self.total",
        "return self._most(request) <= self.total",
        f"{_PLACES}test_admission_waits_until_places_are_left_for_all_that_a_request_may_hold",
    ),
    Mutant(
        "window-one-token-too-wide",
        MASK,
        "near_BWT = places_B1T > positions_BW[:, :, None] - mask.window",
        "near_BWT = places_B1T >= positions_BW[:, :, None] - mask.window",
        _PARITY,
    ),
    Mutant(
        "window-read-one-token-too-late",
        HOST_SPAN,
        "first_B1 = (lengths_B - window + 1).clamp(min=0)[:, None]",
        "first_B1 = (lengths_B - window + 2).clamp(min=0)[:, None]",
        f"{_WINDOWS}test_rows_are_the_same_at_any_width_and_after_rejections",
    ),
    Mutant(
        "window-read-from-the-beginning",
        HOST_SPAN,
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
