"""Seeded bugs of what must depend on a row or a request alone: sums cut by company, draws by place, moves by chance."""

from tests.mutants.greedy import GREEDY_CHOICES
from tests.mutants.mutation import Mutant

CUTS = "tests/kernels/test_cuts_alike.py::"
FORMATS = "tests/unit/common/model/test_weight_formats.py::"
COMPARE, EXACT = "services.target.device.exact.compare", "tests/unit/target/device/exact/"

ARITHMETIC = (
    Mutant(
        "product-adds-in-two-halves-for-few-rows",
        "services.common.kernels.linear.product",
        "product_TF: Tensor = torch.ops.quantized.linear_dynamic_fp16(x_TD, self.packed)",
        "half, product_TF = x_TD.clone(), torch.ops.quantized.linear_dynamic_fp16(x_TD, self.packed)\n"
        "        half[:, ::2] = 0\n"
        "        if x_TD.shape[0] < 4:\n"
        "            product_TF = torch.ops.quantized.linear_dynamic_fp16(half, self.packed)\n"
        "            product_TF += torch.ops.quantized.linear_dynamic_fp16(x_TD - half, self.packed)",
        "tests/kernels/test_rows_alone.py::test_products_by_weights_of_two_bytes",
    ),
    Mutant(
        "squares-scaled-by-the-largest-row",
        "services.common.kernels.rms_norm.reference",
        "length: Tensor = torch.linalg.vector_norm(x, 2, [-1], True)",
        "length: Tensor = torch.linalg.vector_norm(x / x.abs().max(), 2, [-1], True) * x.abs().max()",
        "tests/kernels/test_rows_alone.py::test_norms_and_swiglu",
    ),
    Mutant(
        "synthetic-acceptance-drawn-by-row",
        "services.common.kernels.force_acceptance",
        "uniform(slots.seed_S[slots_B],",
        "uniform(torch.arange(len(slots_B)),",
        "tests/kernels/test_force_acceptance.py::test_a_draw_is_of_seed_and_position_whatever_the_row_slot_and_round",
    ),
    Mutant(
        "top-p-summed-by-the-number-of-rows",
        "services.common.kernels.accept.floor",
        "CHUNK=_CHUNK, SHARE=_SHARE, num_warps=_SUM_WARPS,",
        "CHUNK=(2 - (rows > 64)) * _CHUNK, SHARE=_SHARE, num_warps=_SUM_WARPS,",
        "tests/kernels/test_accept_launches.py::test_sums_are_cut_alike_at_every_number_of_rows",
    ),
    Mutant(
        "check-at-start-compares-nothing",
        COMPARE,
        "found |= set(self._rounds(bucket, asked, len(seated)))",
        "found &= set(self._rounds(bucket, asked, len(seated)))",
        f"{EXACT}test_compare.py",
    ),
    Mutant(
        "check-at-start-skips-the-last-row",
        COMPARE,
        "sound and not torch.equal(rows, plain[:, : shape.span])",
        "sound and not torch.equal(rows[:, :-1], plain[:, : shape.span - 1])",
        f"{EXACT}test_compare.py::test_any_row_of_a_round_names_its_shape_and_no_other",
    ),
    Mutant(
        "check-at-start-prints-no-k-v",
        "services.target.device.exact.scratch",
        "return torch.stack((scores_T, written_T), 1)",
        "return torch.stack((scores_T, 0 * written_T), 1)",
        f"{EXACT}test_scratch.py",
    ),
    Mutant(
        "check-at-start-leaves-its-k-v",
        "services.target.device.exact.scratch",
        "            kv[:, :, self._blocks].zero_()\n",
        "            kv[:, :, self._blocks]\n",
        f"{EXACT}test_scratch.py",
    ),
    Mutant(
        "verdict-kept-for-other-libraries",
        "services.target.device.exact.check",
        '"numerics": asdict(numerics)',
        '"numerics": numerics.release',
        f"{EXACT}test_check.py::test_a_verdict_is_of_numerics_models_shapes_and_sources",
    ),
    Mutant(
        "output-goes-on-with-any-numerics",
        "services.gateway.routing.router",
        "[one for one in others if one.numerics == numerics] or others if numerics else others",
        "others",
        "tests/unit/gateway/routing/test_router.py::test_output_goes_on_with_equal_numerics_however_full_they_are",
    ),
    Mutant(
        "other-numerics-not-told",
        "services.gateway.streams.migration",
        "self.totals.numerics_changed = True",
        "self.totals.numerics_changed = False",
        "tests/unit/gateway/streams/test_migration.py::test_output_of_unequal_numerics_is_told_once_it_is_there",
    ),
    Mutant(
        "numerics-without-the-libraries",
        "services.common.device.numerics",
        "json.dumps(asdict(self), sort_keys=True)",
        'json.dumps(asdict(self) | {"libraries": {}}, sort_keys=True)',
        "tests/unit/common/device/test_numerics.py::test_a_digest_is_of_all_parts_in_any_order",
    ),
    Mutant(
        "keys-tiled-by-the-number-of-rows",
        "services.common.kernels.span_attention.kernel",
        '"TOKENS": tokens,',
        '"TOKENS": tokens // (1 + (rows > 4)),',
        f"{CUTS}test_keys_are_tiled_and_split_alike",
    ),
    Mutant(
        "splits-by-the-number-of-sequences",
        "services.common.kernels.span_attention.kernel",
        "splits = split_count(span.mask.window, together, tokens)",
        "splits = split_count(span.mask.window, together, tokens) * (1 + (batch > 8))",
        f"{CUTS}test_keys_are_tiled_and_split_alike",
    ),
    Mutant(
        "windows-lose-their-last-tile",
        "services.common.kernels.span_attention.splits",
        "(window + width - 3) // split_tokens(window, tokens) + 2",
        "(window + width - 3) // split_tokens(window, tokens) + 1",
        "tests/kernels/gpu/test_attention_windows.py::test_a_drafters_block",
    ),
    Mutant(
        "sequences-of-one-length-share-a-place",
        "services.common.kernels.prepare_span.kernel",
        "((theirs > length) | ((theirs == length) & (other < row)))",
        "(theirs > length)",
        "tests/kernels/gpu/test_prepare_span.py::test_sequences_are_ranked_from_the_longest_on",
    ),
    Mutant(
        "a-refused-product-serves-with-its-end",
        "services.common.kernels.linear.kernel",
        "return cuda_tiling(x_TD, weight_FD, kind, routed) if allowed(outputs, depth, len(x_TD)) else None",
        "return cuda_tiling(x_TD, weight_FD, kind, routed)",
        "tests/kernels/test_cuda_products.py::test_many_rows_that_were_refused_go_through_triton_64_at_a_time",
    ),
    Mutant(
        "rows-of-eight-bits-share-a-scale",
        "services.common.kernels.linear.int8_weight",
        "top_T = wide_TD.abs().amax(-1)",
        "top_T = wide_TD.abs().amax().expand(len(wide_TD))",
        "tests/kernels/test_int8_weight.py::test_a_row_is_the_same_in_any_company",
    ),
    Mutant(
        "eight-bits-in-shares-for-few-rows",
        "services.common.kernels.linear.int8_kernel",
        "triton.cdiv(outputs, band))](",
        "triton.cdiv(outputs, band), 1 + (rows < 17))](",
        f"{CUTS}test_products_in_eight_bits_have_a_program_for_a_tile_of_rows_and_a_band",
    ),
    Mutant(
        "products-in-shares-for-few-rows",
        "services.common.kernels.linear.kernel",
        "linear_kernel[(bands,)](",
        "linear_kernel[(bands, 1 + (rows < 17))](",
        f"{CUTS}test_products_add_their_whole_depth_in_one_program",
    ),
    Mutant(
        "scales-of-packed-weights-begin-anew-with-each-part",
        "services.common.model.files.widen",
        "value = value * scale_RC[row_F[part]]",
        "value = value * scale_RC[row_F[: len(value)]]",
        f"{FORMATS}test_numbers_do_not_depend_on_how_many_are_widened_at_a_time",
    ),
    Mutant(
        "zeros-of-gptq-as-stored",
        "services.common.model.files.weight_formats.gptq",
        "else 1, act_order)",
        "else 0, act_order)",
        f"{FORMATS}test_numbers_are_those_of_the_formula",
    ),
    Mutant(
        "scales-of-packed-weights-rounded-first",
        "services.common.model.files.widen",
        "if scales.dtype == torch.uint8 else scales).float()",
        "if scales.dtype == torch.uint8 else scales).bfloat16().float()",
        f"{FORMATS}test_numbers_are_those_of_the_formula",
    ),
    *GREEDY_CHOICES,
)
