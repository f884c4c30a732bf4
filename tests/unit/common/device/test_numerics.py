"""What names the numerics of a process: every part that decides a sum's rounding, and nothing else."""

from dataclasses import replace

import torch

from services.common.device.numerics import Numerics, numerics_of

ONE = Numerics(release="1.0.0", device="GPU", libraries={"torch": "2", "triton": "3"}, dtype="bfloat16")


def test_a_digest_is_of_all_parts_in_any_order() -> None:
    assert ONE.digest == replace(ONE, libraries={"triton": "3", "torch": "2"}).digest
    others = [
        replace(ONE, release="1.0.1"),
        replace(ONE, device="GPU 2"),
        replace(ONE, libraries={"torch": "2", "triton": "3.1"}),
        replace(ONE, dtype="float32"),
        replace(ONE, kv_dtype="int8"),
    ]
    assert len({one.digest for one in (ONE, *others)}) == 6
    assert len(ONE.digest) == 12


def test_a_cpu_is_named_by_model_instructions_and_threads() -> None:
    found = numerics_of("1.0.0", torch.device("cpu"), "float32")
    assert found == numerics_of("1.0.0", torch.device("cpu"), "float32")
    assert found.device.endswith(f"{torch.backends.cpu.get_cpu_capability()}, threads {torch.get_num_threads()}")
    assert found.libraries == {"torch": torch.__version__}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        assert numerics_of("1.0.0", torch.device("cpu"), "float32").digest != found.digest
    finally:
        torch.set_num_threads(before)


def test_the_type_of_keys_and_values_is_a_part() -> None:
    wide, eight = (numerics_of("1.0.0", torch.device("cpu"), "float32", kind) for kind in ("", "int8"))
    rows = numerics_of("1.0.0", torch.device("cpu"), "float32", "", "int8")
    assert (wide.kv_dtype, eight.kv_dtype, rows.activations) == ("", "int8", "int8")
    assert len({wide.digest, eight.digest, rows.digest}) == 3
