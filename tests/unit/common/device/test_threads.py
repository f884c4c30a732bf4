"""One call sets the threads of torch and of NumPy's products."""

import subprocess
import sys

CODE = """
import time
import numpy, torch
from services.common.device.threads import use_threads
use_threads(1)
a = numpy.random.default_rng(0).random((512, 512), dtype=numpy.float32)
a @ a
work, wall = time.process_time(), time.perf_counter()
for _ in range(40):
    a @ a
print(torch.get_num_threads(), (time.process_time() - work) / (time.perf_counter() - wall))
"""


def test_one_thread_works_alone() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=True)
    threads, share = done.stdout.split()
    assert int(threads) == 1
    assert float(share) < 1.2
