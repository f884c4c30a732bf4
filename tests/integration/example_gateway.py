"""A gateway for the example clients: services started by hand, as docs/run-by-hand.md tells, without Ray."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.pair import ENVIRONMENT, WAIT_S, PairProcesses
from tests.support.tiny_checkpoints import write_tiny
from tests.support.warm import WarmProcess


@contextmanager
def example_gateway() -> Iterator[str]:
    """The address of a gateway that serves the made-up model."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        folder = Path(name)
        models = write_tiny(folder / "models", seed=7)
        pair = PairProcesses(folder, models)
        started = [pair.target, *pair.drafters]
        try:
            pair.wait_ready()
            flags = ["--targets", pair.bound["grpc"], "--tokenizer", str(models.target)]
            gateway = WarmProcess("gateway", ["services.gateway", *flags], folder, ENVIRONMENT)
            started.insert(0, gateway)
            yield gateway.bound(WAIT_S)["grpc"]
        finally:
            for process in started:
                process.stop(0.0)
