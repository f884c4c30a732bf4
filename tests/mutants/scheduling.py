"""Seeded bugs of scheduling: blocks, the step fence, epochs, the prefix cache and admission."""

from tests.mutants.mutation import Mutant

MACHINE = "tests/unit/target/scheduling/test_scheduler_machine.py::test_blocks_are_conserved_in_random_lives"
_SCHEDULER = "tests/unit/target/scheduling/test_scheduler.py::"
_LOOKUPS = "tests/unit/target/scheduling/test_lookups_priced.py::"
_BURSTS = "tests/unit/target/scheduling/test_bursts.py::"
_CACHE = "tests/unit/target/cache/test_prefix_cache.py::"
_ADAPTIVE = "tests/unit/target/scheduling/test_width.py::"
_COSTS = "tests/unit/target/scheduling/test_costs.py::"
_CONTEXTS = "tests/unit/target/scheduling/test_contexts.py::"
_VISITS = "tests/unit/target/scheduling/test_visits.py::"

SCHEDULING = (
    Mutant(
        "blocks-freed-before-the-round-is-over",
        "services.target.cache.blocks",
        "if number <= self.fenced:",
        "if True:",
        f"{_SCHEDULER}test_cancel_frees_everything_at_any_point",
    ),
    Mutant(
        "late-tokens-reach-the-next-owner-of-a-slot",
        "services.target.scheduling.slots",
        "request.epoch == epoch else None",
        "epoch >= 0 else None",
        f"{_SCHEDULER}test_a_slot_that_changes_hands_in_flight_gets_a_new_epoch",
    ),
    Mutant(
        "a-slot-that-is-left-draws-for-ever",
        "services.target.scheduling.slots",
        "self.drawing -= not request.spec.sampling.greedy",
        "self.drawing -= 0",
        MACHINE,
    ),
    Mutant(
        "a-wide-round-without-drafts-is-taken-for-a-plain-one",
        "services.target.scheduling.scheduler",
        "wide = width if micros is None else plan.width",
        "wide = width",
        f"{_LOOKUPS}test_a_wide_round_without_drafts_is_told_as_one_with_its_time",
    ),
    Mutant(
        "rounds-without-drafts-teach-nothing",
        "services.target.scheduling.width.acceptance",
        "reach, total = self._share(row), 1.0",
        "reach, total = 1.0, 1.0",
        f"{_LOOKUPS}test_experts_are_not_read_for_drafts_that_there_are_not",
    ),
    Mutant(
        "rounds-within-a-burst-are-drafted",
        "services.target.scheduling.scheduler",
        "(() if paused else live, speculate and not burst)",
        "(() if paused else live, speculate)",
        f"{_BURSTS}test_rows_that_do_not_pause_in_a_burst_get_one_token_beside_a_pack",
    ),
    Mutant(
        "rows-wait-for-a-pack-however-long-it-takes",
        "services.target.scheduling.bursts",
        "waited + self._seconds(left) + self._seconds(left - self._pack_tokens + arrived) <",
        "waited <",
        f"{_BURSTS}test_rows_lie_beside_packs_that_take_longer_than_a_pause",
    ),
    Mutant(
        "a-pause-forgets-the-round-in-flight",
        "services.target.scheduling.bursts",
        "(began, waited + self._seconds(plan.prefill_tokens))",
        "(began, waited)",
        "tests/unit/bench/test_bursts.py::test_a_row_that_decoded_before_a_burst_waits_for_one_pause",
    ),
    Mutant(
        "a-pause-forgets-prompts-that-wait-for-a-slot",
        "services.target.scheduling.scheduler",
        "self._roster.prefill_left + waiting",
        "self._roster.prefill_left",
        "tests/unit/bench/test_bursts.py::test_a_row_that_decoded_before_a_burst_waits_for_one_pause",
    ),
    Mutant(
        "a-pause-expects-no-more-prompts",
        "services.target.scheduling.bursts",
        "left - self._pack_tokens + arrived",
        "left - self._pack_tokens",
        "tests/unit/bench/test_bursts.py::test_a_row_that_decoded_before_a_burst_waits_for_one_pause",
    ),
    Mutant(
        "the-last-pack-tells-how-long-packs-take",
        "services.target.scheduling.bursts",
        "deque(maxlen=3)",
        "deque(maxlen=1)",
        f"{_BURSTS}test_a_pack_whose_end_was_seen_late_makes_no_other_one_short",
    ),
    Mutant(
        "rows-that-were-left-out-are-left-out-again",
        "services.target.scheduling.turns",
        "joined[slot][0] not in self._left_out, ",
        "",
        "tests/unit/target/scheduling/test_turns.py::test_rows_that_got_fewest_tokens_go_first",
    ),
    Mutant(
        "a-row-that-is-ahead-goes-first",
        "services.target.scheduling.turns",
        "start + request.generated) for",
        "-request.generated) for",
        "tests/unit/target/scheduling/test_turns.py::test_turns_bring_rows_together_that_came_apart",
    ),
    Mutant(
        "a-request-that-joins-is-behind-all-others",
        "services.target.scheduling.turns",
        "lowest - request.generated",
        "-request.generated",
        "tests/unit/target/scheduling/test_turns.py::test_a_request_that_joins_starts_at_the_lowest_count",
    ),
    Mutant(
        "contexts-cost-nothing",
        "services.target.scheduling.width.costs",
        "own + self._level[bucket] + self.of_context(width, context))",
        "own + self._level[bucket])",
        f"{_CONTEXTS}test_long_contexts_ask_for_a_wider_round",
    ),
    Mutant(
        "what-contexts-add-is-a-width-s-own",
        "services.target.scheduling.width.costs",
        "beside = self._level[bucket] + self.of_context(width, context)",
        "beside = self._level[bucket]",
        f"{_CONTEXTS}test_rounds_of_long_contexts_teach_what_those_of_short_ones_cost",
    ),
    Mutant(
        "a-width-is-chosen-without-contexts",
        "services.target.scheduling.scheduler",
        "self._policy.choose(self._bucket(len(rows)), len(rows), context)",
        "self._policy.choose(self._bucket(len(rows)), len(rows), 0)",
        f"{_CONTEXTS}test_the_policy_is_told_the_tokens_of_all_rows",
    ),
    Mutant(
        "many-rows-take-a-wider-width-for-any-gain",
        "services.target.scheduling.width.width",
        "1.0 - step * self._wider(width, bucket) - ragged * isinstance(width, Ragged) for width",
        "1.0 for width",
        "tests/unit/target/scheduling/test_regret.py::test_many_rows_take_a_wider_width_for_a_clear_gain_alone",
    ),
    Mutant(
        "a-smaller-round-counts-the-tokens-of-all-rows",
        "services.target.scheduling.width.width",
        "min(1.0, bucket / max(1, self.acceptance.rows))",
        "1.0",
        "tests/unit/target/scheduling/test_turns.py::test_a_full_round_expects_the_tokens_of_its_own_rows",
    ),
    Mutant(
        "a-burst-takes-a-chunk-where-rows-decode",
        "services.target.scheduling.settings",
        "self.pack_tokens if burst or not rows else 0",
        "self.pack_tokens if not rows else 0",
        f"{_BURSTS}test_rows_that_do_not_pause_in_a_burst_get_one_token_beside_a_pack",
    ),
    Mutant(
        "rows-beside-a-pack-take-the-places-of-prompts",
        "services.target.device.prefill",
        "first + row if row < beside else nowhere",
        "row if row < beside else nowhere",
        "tests/unit/target/device/test_runner_packs.py",
    ),
    Mutant(
        "frames-wait-while-a-round-lands",
        "services.target.engine.engine",
        "        self._parts.launching.end()\n",
        "",
        "tests/unit/target/engine/test_engine_ahead.py",
    ),
    Mutant(
        "hit-covers-the-whole-prompt",
        "services.target.cache.prefix_cache",
        "max(tokens - 1, 0)",
        "tokens",
        f"{_CACHE}test_a_hit_never_covers_the_whole_prompt",
    ),
    Mutant(
        "rejected-drafts-enter-the-cache",
        "services.target.cache.manager",
        "full = computed // self.pool.block_size",
        "full = (computed + 2) // self.pool.block_size",
        MACHINE,
    ),
    Mutant(
        "tenants-share-blocks",
        "services.target.cache.prefix_cache",
        "self._identity + _framed(salt)",
        "self._identity + _framed(salt[:0])",
        f"{_CACHE}test_tenants_models_and_drafters_do_not_share",
    ),
    Mutant(
        "idle-hit-counted-as-available",
        "services.target.cache.manager",
        "fresh + self.pool.count_idle(hit.blocks) + spare",
        "fresh + spare",
        MACHINE,
    ),
    Mutant(
        "no-room-for-rounds-in-flight",
        "services.target.scheduling.scheduler",
        "self._width_in_flight + width, self._preempt",
        "width, self._preempt",
        f"{_SCHEDULER}test_rounds_in_flight_reserve_for_all_of_them",
    ),
    Mutant(
        "undrafted-positions-count-as-misses",
        "services.target.scheduling.width.acceptance",
        "missed = accepted < drafted and not ended",
        "missed = accepted < self._longest",
        f"{_ADAPTIVE}test_positions_not_drafted_are_not_observed",
    ),
    Mutant(
        "a-visit-counts-rounds-at-the-clock-before",
        "services.target.scheduling.width.visits",
        "place >= self._first and micros",
        "place >= 0 and micros",
        f"{_VISITS}test_the_second_half_of_each_run_counts",
    ),
    Mutant(
        "a-visit-is-compared-with-what-came-before-alone",
        "services.target.scheduling.width.visits",
        "own - fmean(home) if",
        "own - home[0] if",
        f"{_VISITS}test_what_contexts_grow_by_meanwhile_is_no_difference",
    ),
    Mutant(
        "a-visit-teaches-nothing",
        "services.target.scheduling.width.costs",
        "self._moved(cell, error * (",
        "self._moved(cell, 0.0 * error * (",
        f"{_VISITS}test_a_width_that_lowers_the_clock_is_left",
    ),
    Mutant(
        "contexts-that-grow-cost-wide-rounds-more",
        "services.target.scheduling.width.costs",
        "own + self._level[bucket] + self.of_context(width, context))",
        "own * (1.0 + self._level[bucket] / self._base[bucket, 1]))",
        f"{_COSTS}test_contexts_that_grow_add_the_same_time_to_all_widths",
    ),
    Mutant(
        "prefill-starves-decoding",
        "services.target.scheduling.scheduler",
        "return Grown(rows, (), 0)",
        "return Grown(() if self._roster.prefill_left else rows, (), 0)",
        f"{_SCHEDULER}test_decoding_goes_on_while_a_long_prompt_prefills",
    ),
)
