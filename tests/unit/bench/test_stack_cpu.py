"""What a stack computes is told by its own processes, and of nothing else."""

import os
import subprocess
import sys

import pytest

from tests.bench.stack_cpu import SERVES, below, cpu_s, serving

BUSY = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\nsys.stdin.read()"


def test_what_a_child_computes_is_counted_and_a_stranger_is_not_looked_for() -> None:
    with pytest.raises(ProcessLookupError, match="nothing below"):
        serving(os.getpid())
    command = [sys.executable, "-c", BUSY, SERVES[-1].decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        assert child.pid in below(os.getpid())
        assert serving(os.getpid()) == [child.pid]
        assert cpu_s([child.pid]) >= 0.15
