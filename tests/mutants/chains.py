"""Seeded bugs of chains: which state a row is made of, under which position it lies, and what a request begins with."""

from tests.mutants.mutation import Mutant

SEEDS = "services.common.model.states.seeds"
CELL = "services.common.model.drafters.chain_cell"
CHAIN = "services.common.model.drafters.chain"
CONTEXT = "services.common.model.drafters.chain_context"
DRAFTERS = "services.common.model.drafters"
MTP = "services.common.model.drafters.mtp"
EAGLE3 = "services.common.model.drafters.eagle3"
VERIFY = "services.target.device.verify"
RUNNER = "services.target.device.runner"

_SEEDED = "tests/unit/common/model/test_seeded_coupling.py::"
_EAGLE3 = "tests/unit/common/model/test_eagle3.py::"
_TABLES = "tests/unit/common/model/test_drafter_tables.py::"
_UNIT = "tests/unit/common/model/test_chains.py::"
PARITY = f"{_UNIT}test_drafts_and_hidden_states_equal_the_plain_implementation"
REJECTED = f"{_UNIT}test_rejected_rows_are_written_again"
CACHED = f"{_UNIT}test_a_request_goes_on_behind_a_cached_block"
SEGMENTS = f"{_UNIT}test_segments_of_a_prompt_may_lie_in_one_forward"
SERVED = "tests/lossless/test_chains.py::test_drafts_follow_from_the_text_alone"
SERVED_PLAIN = "tests/lossless/test_chains.py::test_drafts_are_those_of_a_plain_implementation"

CHAINS = (
    Mutant("chain-tap-off-by-one", MTP, "target_layer_ids=(len(stack.layers) - 1,)",
           "target_layer_ids=(len(stack.layers) - 2,)", SERVED_PLAIN),
    Mutant("seed-of-the-wrong-row", SEEDS, "(counts_B - 1).clamp_min(0)", "(counts_B - 2).clamp_min(0)", PARITY),
    Mutant("seed-of-a-rejected-row", SEEDS, "last_BD = _last(states_BWD, counts_B)", "last_BD = states_BWD[:, -1]",
           REJECTED),
    Mutant("rows-under-the-states-position", SEEDS, "torch.cat((first_BD[:, None], states_BWD[:, :-1]), 1)",
           "states_BWD", PARITY),
    Mutant("block-seed-of-its-first-row", SEEDS, "% self._block_size == self._block_size - 1",
           "% self._block_size == 0", CACHED),
    Mutant("segments-begin-with-the-slots-seed", SEEDS, "follows_BB.any(1)[:, None]", "follows_BB.all(1)[:, None]",
           SEGMENTS),
    Mutant("segment-in-the-middle-leaves-the-seed", SEEDS, "_follows(part, part.valid_B).any(0) |", "", SEGMENTS),
    Mutant("hit-begins-without-a-seed", RUNNER, "admission.blocks[held - 1] if held else None", "None", SERVED),
    Mutant("hit-begins-with-the-seed-of-its-first-block", RUNNER, "admission.blocks[held - 1] if held",
           "admission.blocks[0] if held", SERVED),
    Mutant("seed-not-published-behind-a-round", VERIFY, "            pool.seeds.publish()\n", "", SERVED_PLAIN),
    Mutant("seed-published-before-it-is-committed", VERIFY,
           "pool.seeds.commit(states_TD, self._rows_B, self.result.count_B)\n            pool.seeds.publish()",
           "pool.seeds.publish()\n            pool.seeds.commit(states_TD, self._rows_B, self.result.count_B)",
           SERVED_PLAIN),
    Mutant("chain-sees-position-0", CELL, "(places_T < 1) | (places_T >= lengths_B[:, None])",
           "places_T >= lengths_B[:, None]", PARITY),
    Mutant("state-recycled-before-its-norm", MTP, "recycles_normed=True", "recycles_normed=False", PARITY),
    Mutant("state-in-front-of-the-embedding", MTP,
           "torch.cat((self.of_embedding(embedded_TD), self.of_hidden(before_TD)), -1)",
           "torch.cat((self.of_hidden(before_TD), self.of_embedding(embedded_TD)), -1)", PARITY),
    Mutant("eagle3-tap-is-the-id", f"{EAGLE3}.reading", "tuple(one - 1 for one in ids)", "tuple(one for one in ids)",
           f"{_EAGLE3}test_streams_are_those_before_the_layers_that_a_file_names"),
    Mutant("eagle3-usual-taps-off-by-one", DRAFTERS, "1, layers // 2 - 1, layers - 4",
           "2, layers // 2, layers - 3", f"{_EAGLE3}test_a_file_that_names_none_has_the_usual_ones"),
    Mutant("a-tied-file-drafts-with-the-targets-head", f"{DRAFTERS}.tables", "if tied and EMBED in own:",
           "if False:", f"{_TABLES}test_the_embedding_of_a_tied_file_is_its_head"),
    Mutant("a-map-of-all-tokens-is-not-followed", f"{DRAFTERS}.vocabulary", "and torch.equal(ids_V, entries_V)",
           "and len(entries_V)", f"{_TABLES}test_a_map_of_the_whole_vocabulary_in_another_order"),
    Mutant("drafts-of-a-part-are-not-mapped", CHAIN, "self._vocabulary.tokens(_best(hidden_BD, head, coupling, step))",
           "_best(hidden_BD, head, coupling, step)", f"{_EAGLE3}test_drafts_are_tokens_that_the_file_names"),
    Mutant("eagle3-passes-on-normed-states", EAGLE3, "recycles_normed=spec.norm_output", "recycles_normed=True",
           PARITY),
    Mutant("context-by-the-targets-embedding", CONTEXT, "None if torch.equal(own_VD, target.embed_VD) else own_VD",
           "None", f"{_EAGLE3}test_an_embedding_of_its_own_is_used_by_both_halves"),
    Mutant("lookup-in-the-place-of-every-draft", "services.drafter.proposers.cascade",
           "found.chances_BK[:, :1] > _LIKELY", "found.chances_BK[:, :1] > -1.0",
           "tests/unit/drafter/test_cascade.py::test_a_row_that_repeats_itself_is_continued_and_another_drafted"),
    Mutant("latest-occurrence-for-the-majority", "services.drafter.proposers.repeats", "agreeing_BMK.sum(-1).argmax(1)",
           "start_BM.argmax(1)", "tests/unit/drafter/test_ngram.py::test_what_most_matches_say_wins"),
    Mutant("path-beside-whole-scores-of-the-head", "services.common.model.drafters.nodes",
           "torch.log1p(-chances_BD)[:, :, None]", "0.0 * chances_BD[:, :, None]",
           "tests/unit/common/model/test_nodes.py::test_a_path_from_elsewhere_takes_its_share_of_the_scores"),
    Mutant("confidence-by-the-row-alone", "services.common.model.drafters.dspark.confidence",
           "if self._before_R is not None:", "if False:",
           "tests/unit/common/model/test_drafter_kinds.py"
           "::test_candidates_are_as_likely_together_as_a_checkpoint_is_sure"),
    Mutant("calibration-that-never-learns", "services.drafter.proposers.calibrated", "* _FORGET + right",
           "* _FORGET + claimed",
           "tests/unit/drafter/test_calibrated.py::test_trees_become_those_of_a_drafter_that_is_right"),
    Mutant("calibration-of-whoever-has-the-slot", "services.drafter.proposers.calibrated",
           "asked.epoch == epoch and ", "",
           "tests/unit/drafter/test_calibrated.py::test_what_another_request_says_in_a_slot_is_not_told"),
    Mutant("noise-of-the-position-before", "services.common.kernels.argmax_token.draws", "[:, None] + 1 + self.first",
           "[:, None] + self.first", f"{_SEEDED}test_seeds_choose_as_noise_does"),
    Mutant("noise-of-a-chains-first-step", "services.common.model.drafters.chain", "_replace(first=step)",
           "_replace(first=0)", "tests/lossless/test_seeded.py::test_seeds_draft_as_noise_does"),
    Mutant("codes-that-shared-memory-does-not-hold", "services.common.kernels.rank_candidates.kernel",
           "if padded * rank_pad > _MOST_CODES:", "if not padded:",
           "tests/kernels/gpu/test_rank_candidates.py::test_codes_that_shared_memory_does_not_hold_are_ranked"),
    Mutant("memory-of-one-step-for-two-kinds", "services.target.sizing.memory_terms", " * (1 + seeded(draft))", "",
           "tests/unit/target/sizing/test_memory_terms.py::test_steps_of_rounds_that_draw_are_planned"),
    Mutant("rounds-that-draw-by-the-step-of-others", "services.drafter.attachment",
           "self._draws and bits & DRAWN != 0", "False", "tests/unit/drafter/test_dflash.py"
           "::test_rounds_that_draw_have_steps_of_their_own_where_seeds_are"),
    Mutant("a-round-that-draws-is-not-told", "services.target.scheduling.scheduler",
           "drawn=self._roster.drawing > 0", "drawn=False",
           "tests/lossless/test_seeded.py::test_seeds_draft_as_noise_does"),
)  # fmt: skip
