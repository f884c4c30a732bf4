"""Seeded bugs of outputs that grammars rule: which drafts masks hold for, and what a walk leaves behind."""

from tests.mutants.mutation import Mutant

ACCEPT = "services.common.kernels.accept.reference"
WALKER = "services.target.device.walker"
_WALKER = "tests/unit/target/device/test_walker.py::"
MIND = "services.target.device.mind"
_FORCED = "tests/unit/target/device/test_forced.py::"
_AHEAD = "tests/unit/target/device/test_runner_ahead.py::"

MASKS = (
    Mutant(
        "a-draft-that-masks-were-not-made-for-is-accepted",
        ACCEPT,
        "right_BK[index] &= drafts_BK[index] == walked_K",
        "pass",
        "tests/kernels/test_accept.py::test_a_draft_that_the_masks_were_not_made_for_is_not_accepted",
    ),
    Mutant(
        "walked-drafts-stay-in-the-matcher",
        WALKER,
        "self._matcher.rollback(consumed)",
        "pass",
        f"{_WALKER}test_a_thought_that_the_prompt_has_begun_is_free_until_it_closes",
    ),
    Mutant(
        "a-choice-may-be-another-spelling-of-the-one-way",
        WALKER,
        "if self._way(place) not in (FREE, token):",
        "if False:",
        f"{_WALKER}test_one_way_has_one_spelling_though_a_matcher_takes_others",
    ),
    Mutant(
        "a-path-that-was-walked-for-choices-stays-in-the-matcher",
        WALKER,
        "self._matcher.rollback(more)",
        "pass",
        f"{_WALKER}test_a_choice_is_masked_to_itself_where_its_mask_has_it_and_else_has_the_whole_mask",
    ),
    Mutant(
        "what-is-known-of-a-place-is-told-of-that-behind-it",
        WALKER,
        "self._ways[known:] if known == len(spoken) else []",
        "self._ways[known:]",
        f"{_WALKER}test_a_choice_is_masked_to_itself_where_its_mask_has_it_and_else_has_the_whole_mask",
    ),
    Mutant(
        "a-stop-token-is-chosen-too-early",
        WALKER,
        "or (row < early and choice in stops)",
        "",
        f"{_WALKER}test_a_row_that_chooses_a_stop_token_too_early_has_all_others_that_may_come",
    ),
    Mutant(
        "a-whole-mask-has-a-stop-token-too-early",
        WALKER,
        "                    without(mask_N, stops)",
        "                    pass",
        f"{_WALKER}test_a_row_that_chooses_a_stop_token_too_early_has_all_others_that_may_come",
    ),
    Mutant(
        "what-a-nucleus-leaves-of-all-tokens-tells-of-those-of-a-mask",
        "services.common.request.sampling",
        "return not self.processed and (self.greedy or",
        "return not self.processed and (True or",
        "tests/kernels/test_peek.py::test_nothing_is_told_where_it_would_not_hold",
    ),
    Mutant(
        "mended-drafts-stay-in-the-matcher",
        WALKER,
        "            matcher.rollback(consumed)",
        "            pass",
        f"{_WALKER}test_mended_drafts_follow_the_rule_and_change_no_mask",
    ),
    Mutant(
        "a-library-that-gives-up-at-a-draft-ends-the-request",
        WALKER,
        "return walked[:-1] if consumed else walked",
        "return walked",
        f"{_WALKER}test_a_library_that_gives_up_behind_drafts_does_not_end_the_request",
    ),
    Mutant(
        "mended-drafts-do-not-reach-the-step",
        "services.target.device.masks",
        "post_SK[slot, : len(path.tokens)] = path.tokens",
        "pass",
        "tests/lossless/test_grammars.py::test_drafts_that_break_a_grammar_are_mended_and_change_no_text",
    ),
    Mutant(
        "a-mended-draft-may-break-the-rule",
        WALKER,
        "if token not in ends and matcher.try_consume_tokens([token]):",
        "if token not in ends and matcher.try_consume_tokens([token]) >= 0:",
        f"{_WALKER}test_a_draft_that_breaks_the_rule_becomes_what_stood_there_before",
    ),
    Mutant(
        "a-mended-draft-before-a-thought-may-break-the-rule",
        WALKER,
        "in known if self._fits(mind, token)), None)",
        "in known), None)",
        f"{_WALKER}test_a_draft_is_mended_by_the_rule_where_a_thought_may_begin",
    ),
    Mutant(
        "a-text-ends-within-a-thought",
        WALKER,
        "clear_bit(mask_N, token)",
        "pass",
        f"{_WALKER}test_a_thought_that_the_prompt_has_begun_is_free_until_it_closes",
    ),
    Mutant(
        "a-token-named-like-a-tag-is-no-text",
        "services.common.request.masking_tokenizer",
        "if one.special and token < vocab_size",
        "if token < vocab_size",
        "tests/unit/common/request/test_masking_tokenizer.py::test_a_text_with_tags_is_written_to_its_end",
    ),
    Mutant(
        "a-thought-has-one-token-more-than-its-budget",
        MIND,
        "self.count < thought.budget:",
        "self.count <= thought.budget:",
        f"{_FORCED}test_a_thought_is_closed_when_its_budget_is_spent",
    ),
    Mutant(
        "a-mask-begins-a-round-late",
        "services.target.device.state",
        "REACH = 3",
        "REACH = 1",
        "tests/lossless/test_forced.py::test_rounds_that_are_launched_ahead_wait_where_a_token_may_be_forced",
    ),
    Mutant(
        "a-round-waits-for-masks-that-no-rule-needs-yet",
        "services.target.device.state",
        "return seat.walker is not None and seat.unruled_for < REACH * self._settings.widest",
        "return seat.walker is not None",
        f"{_AHEAD}test_no_round_waits_for_masks_that_no_rule_needs",
    ),
    Mutant(
        "a-row-whose-masks-come-too-late-is-not-left-out",
        "services.common.kernels.wait_masks",
        "np.where(late_B, pad_slot, slots_B)",
        "slots_B",
        f"{_AHEAD}test_a_row_whose_masks_come_too_late_commits_nothing_in_that_round",
    ),
    Mutant(
        "rows-that-missed-a-round-come-as-they-come",
        "services.target.device.masks",
        "key=lambda row: -row[1].missed",
        "key=lambda row: 0",
        f"{_AHEAD}test_rows_that_missed_a_round_come_first",
    ),
    Mutant(
        "a-banned-sequence-is-known-by-its-last-two-tokens",
        "services.target.device.vocabulary",
        "if tuple(text[-len(word) + 1 :]) == word[:-1]",
        "if text[-1] == word[-2]",
        f"{_FORCED}test_no_banned_sequence_comes_and_nothing_else_is_forbidden",
    ),
    Mutant(
        "drafts-before-a-row-are-no-text",
        WALKER,
        "text = self._behind(text, (draft,))",
        "pass",
        f"{_FORCED}test_rows_equal_those_of_an_output_that_was_committed",
    ),
)
