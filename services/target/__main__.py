"""Runs a target by hand: ``python -m services.target --model DIR --drafter-model DIR --drafter-address ADDRESS``."""

import sys
import threading
from contextlib import suppress

from services.common.serving.parent import end_with_parent
from services.common.serving.process import collect_later, leave, leave_when_asked


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    leave_when_asked()
    collect_later()
    end_with_parent()
    # Imported only now: it takes seconds, in which the process may be asked to leave.
    from services.common.serving import lifecycle, settings
    from services.target.settings import TargetSettings

    loaded = settings.load(TargetSettings, sys.argv[1:])
    if loaded.device == "cuda":
        threading.Thread(target=_meet_gpu, args=(loaded.device,), daemon=True).start()
    from services.target.app import TargetApp

    return lifecycle.run("target", TargetApp(loaded), loaded.log_level, loaded.pair_id)


def _meet_gpu(device: str) -> None:
    """Makes the GPU's context while the rest is imported. What fails here is met again, and told, when models load."""
    with suppress(Exception):
        import torch

        from services.common.device.device import keep_no_stack
        from services.common.kernels.ahead import meet_triton

        keep_no_stack(torch.device(device))
        meet_triton()


if __name__ == "__main__":
    leave(main())
