"""The seeded bugs: each has been a real defect of some speculative or continuous-batching engine."""

from tests.mutants.arithmetic import ARITHMETIC
from tests.mutants.chains import CHAINS
from tests.mutants.experts import EXPERTS
from tests.mutants.hybrids import HYBRIDS
from tests.mutants.kv_codes import KV_CODES
from tests.mutants.masks import MASKS
from tests.mutants.mutation import Mutant
from tests.mutants.nodes import NODES
from tests.mutants.ragged import RAGGED
from tests.mutants.scheduling import SCHEDULING
from tests.mutants.snapshots import SNAPSHOTS
from tests.mutants.windows import SLIDING

SPAN = "services.common.kernels.span_attention.host_span"
ACCEPT = "services.common.kernels.accept.reference"
PROCESSORS = "services.common.kernels.accept.processors"
TAKE = "services.common.kernels.mailbox"
NOISE = "services.common.device.noise"
TARGET = "services.common.model.target"
HOST = "services.common.model.cpu.cpu"
STATE = "services.target.device.state"
VERIFY = "services.target.device.verify"
PREFILL = "services.target.device.prefill"
RING = "services.target.device.noise_ring"
RUNNER = "services.target.device.runner"
PUBLISH = "services.common.kernels.mailbox"
PUBLISHER = "services.target.device.publish"

_LOSSLESS = "tests/unit/target/device/test_runner_lossless.py::"
_REQUESTS = "tests/unit/target/device/test_runner_requests.py::"
_PACKS = "tests/unit/target/device/test_runner_packs.py::"
_STEPS = "tests/unit/target/device/test_runner_steps.py::"
_KERNELS = "tests/kernels/"

PACKED = f"{_PACKS}test_text_is_that_of_prompts_one_by_one"
TRANSFORMERS = f"{_LOSSLESS}test_greedy_equals_transformers"
SPECULATION = f"{_LOSSLESS}test_speculation_changes_nothing"
NEIGHBOURS = f"{_LOSSLESS}test_neighbours_change_nothing"
FORGETS = f"{_LOSSLESS}test_a_slot_forgets_its_last_request"
NO_DRAFTS = f"{_LOSSLESS}test_a_row_that_wants_no_drafts_gets_none"
ONE_FORWARD = f"{_LOSSLESS}test_one_forward_a_round"
STOPS = f"{_REQUESTS}test_a_stop_token_ends_at_every_offset_of_a_span"
CONTEXT = f"{_REQUESTS}test_the_context_limit_is_reached_and_never_passed"
MIN_TOKENS = f"{_REQUESTS}test_a_stop_counts_in_the_span_that_reaches_min_tokens"
RESUME = f"{_REQUESTS}test_a_resumed_request_says_the_rest"
LOGPROBS = f"{_REQUESTS}test_logprobs_are_the_models_own"
PREFIX = f"{_REQUESTS}test_a_prefix_hit_says_the_same"
PREEMPTED = f"{_REQUESTS}test_preempted_requests_wait_and_say_the_same"
ROUNDS = f"{_STEPS}test_500_rounds_capture_and_allocate_nothing"
PUBLISHED = f"{_STEPS}test_the_drafter_sees_what_was_committed"
DRAFT_CONTEXT = f"{_STEPS}test_plain_rounds_keep_the_draft_context_complete"
WINDOWS = "tests/unit/common/model/test_dflash_windows.py"
DRAFTER_KINDS = "tests/unit/common/model/test_drafter_kinds.py::test_drafts_equal_the_plain_implementation"
PUBLISHED_DFLASH = "tests/unit/common/model/test_published.py::test_blocks_are_those_of_the_published_code"
TAGS = f"{_KERNELS}test_read_mailbox.py::test_a_foreign_round_epoch_or_generation_is_absent"
RANGE = f"{_KERNELS}test_read_mailbox.py::test_an_id_out_of_range_makes_its_row_absent"
ACCEPTED = f"{_KERNELS}test_accept.py::test_random_rows_equal_plain_decoding"
TIES = f"{_KERNELS}test_accept.py::test_ties_go_to_the_lowest_id"
LAW = f"{_KERNELS}test_sampling_law.py::test_draws_follow_the_exact_law"
PHILOX = "tests/unit/common/device/test_noise.py::test_philox_gives_the_published_words"
STOP_STRINGS = "tests/unit/gateway/prompts/test_stop_strings.py::test_every_split_cuts_at_the_same_character"

FORWARD = (
    Mutant(
        "k-v-written-one-place-too-far",
        SPAN,
        "slots_BW = _flat_slots(block_table_BN, positions_BW, block_size)",
        "slots_BW = _flat_slots(block_table_BN, positions_BW + 1, block_size)",
        TRANSFORMERS,
    ),
    Mutant(
        "row-sees-the-token-after-it",
        SPAN,
        "_bias(gather_BT.shape[1], positions_BW[:, None, :, None])",
        "_bias(gather_BT.shape[1], positions_BW[:, None, :, None] + 1)",
        TRANSFORMERS,
    ),
    Mutant(
        "positions-start-anew-in-every-span",
        TARGET,
        "table.at(rows.positions_T)",
        "table.at(rows.positions_T - rows.parts[0].span.lengths_B.repeat_interleave(rows.parts[0].span.width))",
        TRANSFORMERS,
    ),
    Mutant(
        "first-token-from-the-row-before-the-last",
        PREFILL,
        "last = index * width + valid - 1",
        "last = index * width + max(valid - 2, 0)",
        TRANSFORMERS,
    ),
    Mutant(
        "chunk-starts-at-zero",
        PREFILL,
        "fields[index] = slot, start, valid",
        "fields[index] = slot, 0, valid",
        TRANSFORMERS,
    ),
    Mutant(
        "rows-of-one-prompt-written-to-anothers-blocks",
        PREFILL,
        "fields[index] = slot, start",
        "fields[index] = pack.segments[0].slot, start",
        PACKED,
    ),
    Mutant(
        "first-token-from-a-row-of-another-prompt",
        PREFILL,
        "ends=inputs.last_B[:count]",
        "ends=inputs.last_B[:count].roll(1)",
        PACKED,
    ),
    Mutant(
        "segments-start-where-their-chunk-does",
        "services.target.device.packing",
        "Segment(chunk.slot, chunk.start + start,",
        "Segment(chunk.slot, chunk.start,",
        PACKED,
    ),
    Mutant(
        "pad-rows-point-at-a-live-slot",
        VERIFY,
        "*[self._pad_slot] * (self.rows_B.shape[0] - len(rows))",
        "*[0] * (self.rows_B.shape[0] - len(rows))",
        NEIGHBOURS,
    ),
    Mutant(
        "growth-overwrites-the-block-table", STATE, "range(seat.blocks, end)", "range(end - seat.blocks)", PREEMPTED
    ),
    Mutant(
        "draft-context-missing-in-plain-rounds",
        VERIFY,
        "            states_TD = pool.write_context(",
        "            states_TD = None if self._width == 1 else pool.write_context(",
        DRAFT_CONTEXT,
    ),
    Mutant(
        "draft-context-missing-for-the-prompt",
        PREFILL,
        "states_TD = pool.write_context(ids_T, features_TF, rows)\n",
        "states_TD = None\n",
        DRAFT_CONTEXT,
    ),
    Mutant(
        "features-tapped-one-layer-early",
        HOST,
        "streams[tap] for tap in taps",
        "streams[tap - 1] for tap in taps",
        "tests/unit/common/model/test_target.py",
    ),
    Mutant("last-tap-before-the-final-norm", HOST, "        streams[-1] = normed_TD\n", "", PUBLISHED_DFLASH),
    Mutant(
        "draft-context-ends-with-the-drafters-own-length",
        "services.common.model.drafters.context",
        "positions = target.spec.max_positions",
        "positions = spec.max_positions",
        PUBLISHED_DFLASH,
    ),
    Mutant(
        "drafts-end-with-the-drafters-own-length",
        "services.drafter.proposers.checkpoint",
        "self._block.reach(shared.history_SC.shape[1])",
        "shared.history_SC.shape",
        "tests/unit/drafter/test_dflash.py::test_it_drafts_in_the_whole_context_of_its_target",
    ),
    Mutant(
        "window-one-position-longer",
        "services.common.kernels.span_attention.span",
        "places_B1T > positions_BW",
        "places_B1T >= positions_BW",
        WINDOWS,
    ),
    Mutant(
        "every-draft-layer-sees-as-the-first-does",
        "services.common.model.drafters.block",
        "views.index(mask) for",
        "0 for",
        WINDOWS,
    ),
    Mutant(
        "a-selector-scores-by-the-anchor-alone",
        "services.common.kernels.walk_candidates",
        "before_VR.index_select(0, token_B)",
        "before_VR.index_select(0, anchor_B)",
        DRAFTER_KINDS,
    ),
    Mutant(
        "a-convolution-behind-takes-the-kernels-before",
        "services.common.model.drafters.dflash2.stack",
        "delta_BW2KG[:, :, 0], self.base_2KD[0])\n        return entering_BWD.flatten(0, 1), delta_BW2KG[:, :, 1]",
        "delta_BW2KG[:, :, 0], self.base_2KD[0])\n        return entering_BWD.flatten(0, 1), delta_BW2KG[:, :, 0]",
        DRAFTER_KINDS,
    ),
    Mutant(
        "an-anchor-that-predicts-is-not-read",
        "services.common.model.drafters.spec",
        "return 0 if self.anchor_predicts else 1",
        "return 1",
        DRAFTER_KINDS,
    ),
    Mutant(
        "attention-factor-forgotten",
        "services.common.kernels.rope.tables",
        "angles_PH.cos() * frequencies.scale, angles_PH.sin() * frequencies.scale",
        "angles_PH.cos(), angles_PH.sin()",
        f"{_KERNELS}test_rope.py",
    ),
    Mutant(
        "a-second-forward-every-round",
        VERIFY,
        "hidden_TD, features_TF = pool.model.forward(",
        "pool.model.forward(ids_BW.flatten(), rows, pool.states, pool.context.taps); hidden_TD, features_TF = pool.model.forward(",
        ONE_FORWARD,
    ),
)

ACCEPTANCE = (
    Mutant(
        "drafts-accepted-after-a-rejected-one",
        ACCEPT,
        "np.logical_and.accumulate(right_BK, axis=1).sum(1)",
        "right_BK.sum(1)",
        ACCEPTED,
    ),
    Mutant(
        "anchor-from-the-row-before",
        ACCEPT,
        "chosen_BW[moving, counts - 1]",
        "chosen_BW[moving, np.maximum(counts - 2, 0)]",
        SPECULATION,
    ),
    Mutant(
        "length-moves-by-accepted-drafts-only",
        ACCEPT,
        "= length_B[moving] + counts",
        "= length_B[moving] + np.maximum(counts - 1, 1)",
        SPECULATION,
    ),
    Mutant(
        "last-of-equal-scores-wins",
        ACCEPT,
        "chosen_BW = logits.argmax(-1)",
        "chosen_BW = logits.shape[-1] - 1 - logits[..., ::-1].argmax(-1)",
        TIES,
    ),
    Mutant("draft-of-another-round-counts", TAKE, "(tags[:, 0] == round_number)", "(tags[:, 0] <= round_number)", TAGS),
    Mutant("draft-for-another-epoch-counts", TAKE, "== epochs_S.numpy()[rows])", ">= 0)", TAGS),
    Mutant("draft-of-another-attachment-counts", TAKE, "(tags[:, 2] == generation)", "(tags[:, 2] > 0)", TAGS),
    Mutant("draft-ids-unchecked", TAKE, "(out < vocab)", "(out < 2**31)", RANGE),
    Mutant(
        "speculation-off-is-ignored",
        STATE,
        "draft_limit=spec.speculation.cap",
        "draft_limit=spec.speculation.max_draft",
        NO_DRAFTS,
    ),
)

SAMPLING = (
    Mutant(
        "one-noise-for-all-rows-of-a-span",
        RING,
        "(head.position + j) % span",
        "head.position % span",
        SPECULATION,
    ),
    Mutant("noise-depends-on-the-slot", RING, "_signed(seed) for _, seed, _", "_signed(seed + slot) for slot, seed, _",
           NEIGHBOURS),
    Mutant("noise-of-the-slots-last-request", RUNNER, "self._ring.forget(admission.slot)", "admission.slot",
           FORGETS),
    Mutant("philox-of-nine-rounds", NOISE, "_ROUNDS = 10", "_ROUNDS = 9", PHILOX),
    Mutant("min-p-dropped", PROCESSORS, "if (min_p_B > 0).any():", "if (min_p_B > 1).any():", LAW),
    Mutant(
        "penalties-counted-by-step-not-by-token",
        PROCESSORS,
        "counts_BWV[known, row, draft_B[known]] += 1",
        "pass",
        f"{SPECULATION}",
    ),
    Mutant(
        "minimum-length-counted-by-step",
        PROCESSORS,
        "np.flatnonzero(tree.depths_BW[index] < missing)",
        "np.arange(len(tree.depths_BW[index]))",
        MIN_TOKENS,
    ),
    Mutant(
        "resumed-output-counts-as-prompt",
        STATE,
        "spec.token_ids[: spec.prompt_length], spec.token_ids[spec.prompt_length :]",
        "spec.token_ids, ()",
        RESUME,
    ),
)  # fmt: skip

ENDS = (
    Mutant(
        "stop-token-seen-only-at-the-end-of-a-commit",
        ACCEPT,
        "code_BW[stop_BW] = End.STOP_TOKEN",
        "code_BW[:, -1:][stop_BW[:, -1:]] = End.STOP_TOKEN",
        STOPS,
    ),
    Mutant("one-token-too-many", ACCEPT, "offsets_W + 1 >= state.max_tokens_S", "offsets_W >= state.max_tokens_S", ACCEPTED),
    Mutant("one-token-past-the-context", ACCEPT, "offsets_W + 2 >= state.limit_S", "offsets_W + 1 >= state.limit_S",
           ACCEPTED),
    Mutant("logprobs-of-the-first-row-for-all", "services.target.device.outputs", "PositionLogprobs(chosen[j],",
           "PositionLogprobs(chosen[0],", LOGPROBS),
    Mutant("history-without-the-anchor", PUBLISH, "torch.add(length_S, 1,", "torch.add(length_S, 0,",
           PUBLISHED),
    Mutant("rows-published-once", PUBLISHER, "!= (self._inputs.version,", "!= (self._rows_version,", PUBLISHED),
    Mutant("block-tables-published-with-the-rows-only", PUBLISHER, "self._pool.state.version):", "self._state_version):",
           PUBLISHED),
    Mutant("verify-leaves-the-old-anchors-published", VERIFY,
           "publish_slots(self._inputs.rows_B, slots.length_S, slots.anchor_S, pool.mapped)",
           "publish_slots(self._inputs.rows_B, slots.length_S, pool.mapped.anchor_S, pool.mapped)", PUBLISHED),
    Mutant("block-table-allocated-anew", STATE,
        "            self.block_table_SN.index_fill_(0, slots_B, 0)\n",
        "            self.block_table_SN = self.block_table_SN.clone().index_fill_(0, slots_B, 0)\n",
        ROUNDS),
    Mutant("stop-string-lost-between-tokens", "services.gateway.prompts.stop_strings", "pending = self._held + text",
           "self._node, pending = 0, self._held + text", STOP_STRINGS),
)  # fmt: skip

MUTANTS: tuple[Mutant, ...] = (
    *FORWARD,
    *ACCEPTANCE,
    *SAMPLING,
    *ENDS,
    *ARITHMETIC,
    *SCHEDULING,
    *HYBRIDS,
    *CHAINS,
    *EXPERTS,
    *MASKS,
    *NODES,
    *RAGGED,
    *KV_CODES,
    *SNAPSHOTS,
    *SLIDING,
)
