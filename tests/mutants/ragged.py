"""Seeded bugs of chains of any lengths: where a piece stands, which drafts it has, and what its request was offered."""

from tests.mutants.mutation import Mutant

TABLE = "services.common.kernels.row_table"
ACCEPT = "services.common.kernels.accept.reference"
ABILITY = "services.target.scheduling.width.ability"
SWEEP = "tests/lossless/test_ragged.py::test_chains_of_any_lengths_say_nothing_else_than_plain_decoding"
_ABILITY = "tests/unit/target/scheduling/test_ability.py::"

RAGGED = (
    Mutant("pieces-begin-at-the-anchor", TABLE, "offsets += range(0, take, grain)", "offsets += [0] * (take // grain)",
           SWEEP),
    Mutant("a-sequence-reads-the-rows-of-another", TABLE, "firsts.append(len(seats) * grain)", "firsts.append(0)",
           SWEEP),
    Mutant("a-draft-without-a-row-is-offered", ACCEPT, "table.takes_B.numpy()[:, None] - 1)",
           "table.takes_B.numpy()[:, None])", SWEEP),
    Mutant("what-able-requests-accept-is-thought-of-all", ABILITY, "return [_chance(own + position.mean)",
           "return [_chance(position.mean)",
           f"{_ABILITY}test_a_request_that_accepts_much_gets_many_rows_and_each_a_piece"),
)  # fmt: skip
