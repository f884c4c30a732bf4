"""Seeded bugs of mixtures of experts: which experts a row gets, and whose rows an expert's product takes."""

from tests.mutants.mutation import Mutant

PROGRAM = "services.common.kernels.experts.program"
PRODUCTS = "services.common.kernels.experts.products"
CHOICE = "services.common.kernels.experts.choice"
REFERENCE = "services.common.kernels.experts.reference"
WARM_UP = "services.target.device.warm_up"

_KERNELS = "tests/kernels/gpu/test_experts.py::"
_CODED = "tests/kernels/gpu/test_coded_experts.py::"
_FAMILIES = "tests/unit/common/model/families/test_experts.py::"

EXPERTS = (
    Mutant(
        "padding-takes-experts",
        PROGRAM,
        "chosen = tl.where(tl.load(live_ptr + row) != 0, chosen, COUNT)",
        "chosen = tl.where(tl.load(live_ptr + row) != 2, chosen, COUNT)",
        f"{_KERNELS}test_padding_gets_no_expert_and_a_row_of_nan_stays_within_the_list",
    ),
    Mutant(
        "padding-among-few-rows-takes-experts",
        PROGRAM,
        "live = there & (tl.load(live_ptr + row, mask=there, other=0) != 0)",
        "live = there & (tl.load(live_ptr + row, mask=there, other=0) != 2)",
        f"{_KERNELS}test_padding_gets_no_expert_and_a_row_of_nan_stays_within_the_list",
    ),
    Mutant(
        "equal-gates-go-to-the-last-expert",
        CHOICE,
        "return best, tl.min(tl.where(key == best, expert, COUNT_PAD), 1, keep_dims=True)",
        "return best, tl.max(tl.where(key == best, expert, -1), 1, keep_dims=True)",
        f"{_KERNELS}test_rows_choose_as_the_reference",
    ),
    Mutant(
        "a-bias-that-weighs",
        CHOICE,
        "rate = tl.where(there, rate, 0.0)",
        "rate = tl.where(there, asked, 0.0)",
        "tests/kernels/gpu/test_windowed_parts.py::test_rows_choose_as_the_reference",
    ),
    Mutant(
        "weights-of-another-expert",
        PROGRAM,
        "weight_ptr += number * (2 * outputs if GATED else outputs) * depth",
        "weight_ptr += number // 2 * (2 * outputs if GATED else outputs) * depth",
        f"{_KERNELS}test_parts_are_those_of_the_reference",
    ),
    Mutant(
        "scales-of-the-first-inputs",
        PRODUCTS,
        "table = tl.load(scale_at + first // GROUP * next_scales)",
        "table = tl.load(scale_at)",
        f"{_CODED}test_parts_have_the_bits_of_numbers",
    ),
    Mutant(
        "scales-of-another-expert",
        PROGRAM,
        "scale_at = scales_ptr + number * next_stack + (tl.where(fitting, line, 0) >> shift)",
        "scale_at = scales_ptr + number // 2 * next_stack + (tl.where(fitting, line, 0) >> shift)",
        f"{_CODED}test_parts_have_the_bits_of_numbers",
    ),
    Mutant(
        "weights-of-another-rank",
        REFERENCE,
        "* weights_TK[:, rank : rank + 1]",
        "* weights_TK[:, rank - 1 : rank]",
        f"{_FAMILIES}test_logits_are_those_of_transformers",
    ),
    Mutant(
        "rounds-measured-with-padding",
        WARM_UP,
        "steps.round.set_rows(seated)",
        "steps.round.set_rows(())",
        "tests/unit/target/device/test_warm_up.py::test_rows_differ_where_there_are_experts",
    ),
)
