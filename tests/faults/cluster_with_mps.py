"""python -m tests.faults.cluster_with_mps FLAGS: a controller on a CPU with a stand-in for an MPS daemon."""

import sys

from deploy.cluster import __main__, mps
from services.common.serving.process import leave_now

# Beside it, on the PATH of the test; it runs under the name of the driver's program.
CONTROL_PROGRAM = """#!/bin/bash
if [ "$1" = -d ]; then
    setsid "$0" serve </dev/null >/dev/null 2>&1 &
elif [ "$1" = serve ]; then
    echo $$ >"$CUDA_MPS_PIPE_DIRECTORY/pid"
    while :; do sleep 0.2; done
else
    read -r word
    kill "$(cat "$CUDA_MPS_PIPE_DIRECTORY/pid")"
fi
"""

if __name__ == "__main__":
    start = mps.Mps.start
    mps.Mps.start = lambda self, on_gpus: start(self, True)  # type: ignore[method-assign]
    # As in the chart's profile for performance: auto minds the daemons of others on this machine.
    sys.argv.append("--mps=true")
    leave_now(__main__.main())
