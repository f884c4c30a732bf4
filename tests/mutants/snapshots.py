"""Seeded bugs of snapshots: where they resume, who may read them and when, and whether a place is ever lost."""

from tests.mutants.mutation import Mutant
from tests.mutants.scheduling import MACHINE

KEEPER = "services.target.cache.state_keeper"
POOL = "services.target.cache.snapshots"
CACHE = "services.target.cache.prefix_cache"
STATES = "services.common.model.states.recurrent"
COPIES = "services.common.model.states.state_snapshots"
RUNNER = "services.target.device.runner"

_POOL = "tests/unit/target/cache/test_snapshots.py::"
TO_THE_BIT = "tests/unit/common/model/test_hybrid_states.py::test_a_sequence_goes_on_from_a_snapshot_to_the_bit"
LEAVES = f"{_POOL}test_a_request_that_leaves_is_kept_as_the_rounds_in_flight_will_leave_it"
NEXT_TURN = "tests/lossless/test_snapshots.py::test_the_next_turn_of_a_chat_computes_little_more_than_what_is_new"

SNAPSHOTS = (
    Mutant(
        "resumed-one-block-too-early",
        STATES,
        "self._folded_S[slot].fill_(folded)",
        "self._folded_S[slot].fill_(folded - 16)",
        TO_THE_BIT,
    ),
    Mutant(
        "kept-as-the-state-of-the-present-length",
        KEEPER,
        "return pool.folded(request.verified) if rounds == 0 else None",
        "return pool.folded(request.computed) if rounds == 0 else None",
        MACHINE,
    ),
    Mutant(
        "round-in-flight-forgotten",
        KEEPER,
        "request.state is State.PREFILL or rounds == 1",
        "request.state is State.PREFILL",
        LEAVES,
    ),
    Mutant("length-guessed-with-two-rounds-in-flight", KEEPER, "or rounds == 1", "or rounds >= 1", LEAVES),
    Mutant(
        "hit-longer-than-its-state",
        CACHE,
        "self.snapshots.find(names[len(found) - 1]) is not None",
        "self.snapshots.find(names[0]) is not None",
        "tests/unit/target/cache/test_prefix_cache.py::test_a_hit_of_a_recurrent_model_ends_where_a_snapshot_is",
    ),
    Mutant(
        "restored-before-it-is-written",
        RUNNER,
        "        self._save(plan.saves)\n",
        "        [*map(self._begin, plan.admissions)]\n        self._save(plan.saves)\n",
        NEXT_TURN,
    ),
    Mutant(
        "snapshot-of-a-failed-round-counts",
        KEEPER,
        "self._forget((*plan.every_save, *self.take()))",
        "self.take()",
        f"{_POOL}test_what_a_failed_round_kept_does_not_count",
    ),
    Mutant(
        "snapshot-of-a-slot-left-in-a-failed-round-counts",
        KEEPER,
        "self._forget((*plan.every_save, *self.take()))",
        "self._forget(plan.every_save)",
        f"{_POOL}test_what_a_failed_round_was_to_fold_does_not_count",
    ),
    Mutant(
        "snapshot-without-the-rows-before-it",
        COPIES,
        "            row_LC.copy_(kept_LC)\n",
        "            row_LC.copy_(row_LC)\n",
        TO_THE_BIT,
    ),
    Mutant("place-leaked", POOL, "            self._free.append(place)\n", "", MACHINE),
    Mutant(
        "snapshot-outlives-its-block", CACHE, "            self.snapshots.forget(name)\n", "            pass\n", MACHINE
    ),
    Mutant(
        "snapshot-of-text-that-was-never-known",
        KEEPER,
        "if self._cache is None or not self._cache.knows(save.name)",
        "if self._cache is None",
        f"{_POOL}test_a_prompt_that_is_cancelled_in_flight_leaves_no_snapshot",
    ),
    Mutant(
        "most-recently-used-goes-first",
        POOL,
        "self.forget(next(iter(self._held)))",
        "self.forget(next(reversed(self._held)))",
        f"{_POOL}test_the_least_recently_used_goes_first",
    ),
    Mutant(
        "known-text-cut-in-every-request",
        "services.target.cache.manager",
        "request.cached_tokens + 2 * snapshots.grid <= branch",
        "request.cached_tokens < branch",
        f"{_POOL}test_the_next_turn_goes_on_close_to_the_last_ones_end",
    ),
)
