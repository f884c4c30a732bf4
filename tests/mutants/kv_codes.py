"""Seeded bugs of keys and values in eight bits: codes that follow the company of a head, and exponents of another."""

from tests.mutants.mutation import Mutant

REFERENCE, KERNEL = "services.common.kernels.kv_codes.reference", "services.common.kernels.kv_codes.kernel"
DEFINITION = "tests/kernels/test_kv_codes.py::"
INTERPRETED = "tests/kernels/gpu/test_kv_codes.py::"
LOGITS = "tests/unit/common/model/test_eight_bit_kv.py::test_logits_are_those_of_the_definition"

KV_CODES = (
    Mutant(
        "heads-coded-by-the-largest-row",
        REFERENCE,
        "top_TH = wide_THD.abs().amax(-1)",
        "top_TH = wide_THD.abs().amax(-1).amax(0, True).expand(wide_THD.shape[:2])",
        f"{DEFINITION}test_a_head_is_coded_by_itself",
    ),
    Mutant(
        "codes-beyond-seven-bits",
        REFERENCE,
        "(share_TH * 128 > 127).int()",
        "(share_TH * 128 > 128).int()",
        f"{DEFINITION}test_codes_and_exponents_are_those_of_the_definition",
    ),
    Mutant(
        "values-with-the-exponents-of-keys",
        "services.common.kernels.store_qkv.reference",
        "store_codes(flat_2PHD[1], flat_2PH[1], slots_T, mixed_THD[:, turning:])",
        "store_codes(flat_2PHD[1], flat_2PH[0], slots_T, mixed_THD[:, turning:])",
        LOGITS,
    ),
    Mutant(
        "attention-by-codes-adds-in-float32",
        "services.common.kernels.span_attention.reference",
        "return attend(q_BWHD.double(), room_2BTHD[0], room_2BTHD[1], bias_B1WT, scale).to(q_BWHD.dtype)",
        "return attend(q_BWHD, room_2BTHD[0].to(q_BWHD.dtype), room_2BTHD[1].to(q_BWHD.dtype), bias_B1WT, scale)",
        f"{DEFINITION}test_attention_is_that_of_what_codes_mean",
    ),
    Mutant(
        "kernel-codes-infinity-as-a-number",
        KERNEL,
        "return tl.where(exponent > _MOST, _NOT_A_NUMBER, tl.maximum(exponent, _LEAST))",
        "return tl.maximum(exponent, _LEAST)",
        f"{INTERPRETED}test_what_is_stored_is_the_code_of_what_would_have_been",
    ),
    Mutant(
        "kernel-reads-the-exponents-of-keys-for-values",
        "services.common.kernels.span_attention.program",
        "value_exponents_ptr = key_exponents_ptr + places * KV_HEADS",
        "value_exponents_ptr = key_exponents_ptr",
        f"{INTERPRETED}test_attention_has_the_bits_of_attention_to_what_codes_mean",
    ),
    Mutant(
        "attention-before-rows-of-eight-bits-adds-in-float32",
        "services.common.model.cpu.cpu",
        "self.wide = isinstance(weights.qkv_FD, Int8Weight | GroupedWeight)",
        "self.wide = False",
        "tests/unit/common/model/test_whole_layers.py::"
        "test_logits_are_those_of_the_definition_and_rows_the_same_in_any_company",
    ),
    Mutant(
        "equal-numerics-with-keys-and-values-of-another-type",
        "services.common.device.numerics",
        '"kv_dtype": kv_dtype,',
        '"kv_dtype": "",',
        "tests/unit/common/device/test_numerics.py::test_the_type_of_keys_and_values_is_a_part",
    ),
)
