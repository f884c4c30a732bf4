"""Seeded bugs of outputs that grammars rule: which drafts masks hold for, and what a walk leaves behind."""

from tests.mutants.mutation import Mutant

ACCEPT = "services.common.kernels.accept.reference"
WALKER = "services.target.device.walker"
_WALKER = "tests/unit/target/device/test_walker.py::"
WALKED = f"{_WALKER}test_rows_equal_those_of_an_output_that_was_committed"

MASKS = (
    Mutant(
        "a-draft-that-masks-were-not-made-for-is-accepted",
        ACCEPT,
        "right_BK[index] &= drafts_BK[index] == walked_K",
        "pass",
        "tests/kernels/test_accept.py::test_a_draft_that_the_masks_were_not_made_for_is_not_accepted",
    ),
    Mutant("walked-drafts-stay-in-the-matcher", WALKER, "self._matcher.rollback(walked)", "pass", WALKED),
    Mutant(
        "a-library-that-gives-up-at-a-draft-ends-the-request",
        WALKER,
        "return max(walked - 1, 0)",
        "return walked",
        f"{_WALKER}test_a_library_that_gives_up_behind_drafts_does_not_end_the_request",
    ),
    Mutant(
        "a-text-ends-within-a-thought",
        WALKER,
        "_clear(masks_WN[row], token)",
        "pass",
        f"{_WALKER}test_a_thought_that_the_prompt_has_begun_is_free_until_it_closes",
    ),
)
