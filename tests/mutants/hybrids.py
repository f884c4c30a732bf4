"""Seeded bugs of recurrent layers: which rows a state holds, where rows are kept, and what they may meet."""

from tests.mutants.delta_kernels import DELTA_KERNELS
from tests.mutants.mutation import Mutant

PLAN = "services.common.kernels.gated_delta.plan"
BLOCKS = "services.common.kernels.gated_delta.blocks"
STATES = "services.common.model.states.states"

_DELTA = "tests/kernels/test_gated_delta.py::"
_HYBRID = "tests/unit/common/model/test_hybrid_states.py::"
ROUNDS = f"{_DELTA}test_states_and_reads_are_those_of_plain_decoding"
TOKEN_LOOP = f"{_DELTA}test_blocks_are_the_recurrence_token_by_token"
NOT_ANOTHERS = f"{_DELTA}test_a_slot_reads_nothing_of_another"

HYBRIDS = (
    Mutant(
        "drafts-are-folded-before-they-are-accepted",
        PLAN,
        "torch.zeros_like(lengths_B) if valid_B is None else valid_B",
        "valid_of_B",
        ROUNDS,
    ),
    Mutant(
        "ring-written-one-place-too-far",
        PLAN,
        "ring_BW = slots_B[:, None] * ring + (length_B1 + row_W) % ring",
        "ring_BW = slots_B[:, None] * ring + (length_B1 + row_W + 1) % ring",
        ROUNDS,
    ),
    Mutant("ring-without-room-for-a-round", PLAN, "+ BLOCK + 2 * width", "+ BLOCK", ROUNDS),
    Mutant(
        "convolution-reads-a-rejected-row",
        PLAN,
        "(position_BT >= length_B1)[:, :, None],",
        "(position_BT > length_B1)[:, :, None],",
        ROUNDS,
    ),
    Mutant("block-folded-before-it-is-full", PLAN, "fold_B = ((lengths_B + sure_B) // block",
           "fold_B = ((lengths_B + sure_B + 15) // block", ROUNDS),
    Mutant(
        "rows-masked-by-a-product",
        BLOCKS,
        "rows_BTC.masked_fill(~(plan.live_BT1 & sound_BT1), 0.0)",
        "rows_BTC * (plan.live_BT1 & sound_BT1)",
        ROUNDS,
    ),
    Mutant(
        "decay-of-the-row-before",
        BLOCKS,
        "gates_BTH = rows_BTC[:, taps - 1 :, channels:]",
        "gates_BTH = rows_BTC[:, taps - 2 : -1, channels:]",
        TOKEN_LOOP,
    ),
    Mutant(
        "a-fresh-slot-reads-its-old-state",
        BLOCKS,
        "kept_BHKV.masked_fill(~plan.started_B[:, None, None, None], 0.0)",
        "kept_BHKV",
        NOT_ANOTHERS,
    ),
    Mutant(
        "state-kept-when-a-slot-changes-hands",
        "services.common.model.states.recurrent",
        "self._folded_S[slot].zero_()",
        "self._folded_S[slot]",
        f"{_HYBRID}test_a_slot_that_changes_hands_begins_anew",
    ),
    Mutant(
        "fold-not-noted",
        "services.common.model.target",
        "        states.fold(plans)\n",
        "",
        f"{_HYBRID}test_states_and_keys_and_values_after_a_prompt_are_those_of_plain_decoding",
    ),
    *DELTA_KERNELS,
)  # fmt: skip
