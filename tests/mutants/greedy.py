"""Seeded bugs of greedy choices on a GPU, run by Triton's interpreter, and of what stands around a verify's head."""

from tests.mutants.mutation import Mutant

GREEDY, TESTS = "services.common.kernels.accept.greedy", "tests/kernels/gpu/"

GREEDY_CHOICES = (
    Mutant(
        "products-find-no-room-beside-a-wait",
        "services.common.kernels.wait_flag.kernel",
        "        want_shared_memory(kernel)\n",
        "        return\n",
        "tests/kernels/test_wait_room.py",
    ),
    Mutant(
        "kernel-takes-the-last-of-equal-scores",
        GREEDY,
        "(order.to(tl.int64) << 32) | (TILE - 1 - place)",
        "(order.to(tl.int64) << 32) | place",
        f"{TESTS}test_greedy.py",
    ),
    Mutant(
        "kernel-tells-zeros-apart",
        GREEDY,
        "score.to(tl.float32) + 0.0  #",
        "score.to(tl.float32)  #",
        f"{TESTS}test_greedy.py::test_both_zeros_are_equal",
    ),
    Mutant(
        "round-published-before-its-context-is-written",
        "services.target.device.verify",
        "        self._beside.join()\n",
        "",
        "tests/unit/target/device/test_verify_order.py",
    ),
)
