"""What a stack computes is told by its own processes, and of nothing else."""

import os
import subprocess
import sys

import pytest

from tests.bench.stack_cpu import SERVES, below, cpu_s, serving

BUSY = "import sys, time\nwhile time.process_time() < 0.2: pass\nprint('done', flush=True)\nsys.stdin.read()"
PARENT = "import subprocess, sys\nsys.stdin.readline()\nsubprocess.run(sys.argv[1:])"
"""A stack of its own: below the process of a test others may serve too."""


def test_what_a_child_computes_is_counted_and_a_stranger_is_not_looked_for() -> None:
    command = [sys.executable, "-c", PARENT, sys.executable, "-c", BUSY, SERVES[-1].decode()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None and parent.stdout is not None
        with pytest.raises(ProcessLookupError, match="nothing below"):
            serving(parent.pid)
        parent.stdin.write(b"go\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == b"done\n"
        (child,) = serving(parent.pid)
        assert {parent.pid, child} <= {*below(os.getpid())}
        assert cpu_s([child]) >= 0.15
