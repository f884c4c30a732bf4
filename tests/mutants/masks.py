"""Seeded bugs of outputs that grammars rule: which drafts masks hold for, and what a walk leaves behind."""

from tests.mutants.mutation import Mutant

ACCEPT = "services.common.kernels.accept.reference"
WALKER = "services.target.device.walker"
_WALKER = "tests/unit/target/device/test_walker.py::"
MIND = "services.target.device.mind"
_FORCED = "tests/unit/target/device/test_forced.py::"
WALKED = f"{_WALKER}test_rows_equal_those_of_an_output_that_was_committed"

MASKS = (
    Mutant(
        "a-draft-that-masks-were-not-made-for-is-accepted",
        ACCEPT,
        "right_BK[index] &= drafts_BK[index] == walked_K",
        "pass",
        "tests/kernels/test_accept.py::test_a_draft_that_the_masks_were_not_made_for_is_not_accepted",
    ),
    Mutant("walked-drafts-stay-in-the-matcher", WALKER, "self._matcher.rollback(consumed)", "pass", WALKED),
    Mutant(
        "a-library-that-gives-up-at-a-draft-ends-the-request",
        WALKER,
        "return max(walked - 1, 0) if consumed else walked",
        "return walked",
        f"{_WALKER}test_a_library_that_gives_up_behind_drafts_does_not_end_the_request",
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
        "services.target.device.masks",
        "REACH = 3",
        "REACH = 1",
        "tests/lossless/test_forced.py::test_rounds_that_are_launched_ahead_wait_where_a_token_may_be_forced",
    ),
    Mutant(
        "a-round-without-a-rule-lands-before-the-next-one-is-planned",
        "services.target.device.masks",
        "ruled = False",
        "ruled = bool(seated)",
        "tests/unit/target/device/test_runner_ahead.py::test_rounds_that_no_mask_rules_are_not_landed_before_the_next_one",
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
