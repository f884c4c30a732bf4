"""Two pairs by Ray on halves of one GPU, or on two: same GPU for target and drafter, and every service killed in turn.

`python -m tests.integration.deploy.ray_pairs --device cuda --save FILE`; with `--device cpu` Ray is told of a GPU that
is not there. A program of its own, because Ray reads its environment when it is imported.
"""

import argparse
import asyncio
import functools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from deploy.cluster import environment

FOLDER = tempfile.TemporaryDirectory(prefix="pl-", ignore_cleanup_errors=True)
environment.prepare(Path(FOLDER.name))

import grpc  # noqa: E402
import ray  # noqa: E402 - reads the environment when it is imported
import torch  # noqa: E402

from deploy.cluster import runtime  # noqa: E402
from deploy.cluster.app import ClusterApp  # noqa: E402
from deploy.cluster.pair import PairStatus  # noqa: E402
from deploy.cluster.settings import ClusterSettings  # noqa: E402
from deploy.stack import EMBEDDED, ServiceProcess  # noqa: E402
from paceline import Client, Options  # noqa: E402
from tests.support.session_client import SessionClient, start  # noqa: E402

PAIRS, TOKENS = 2, 64
TEXT, IDS = "def add(a, b):\n", [17, 300, 45, 9]
WAIT_S = 240.0
"""A pair's first start on a machine compiles every kernel."""
SERVICES = ("drafter", "target")


@dataclass(frozen=True)
class Kill:
    """What came of killing one service; times are seconds from the kill."""

    pair: str
    service: str
    gateway_served_s: float
    """A request that came to the gateway right after the kill was answered in full."""
    back_s: float
    """The controller saw the service again, and the pair was ready."""
    drafts_s: float
    """The pair spoke with drafts again."""
    same_gpu: bool
    same_text: bool


class Cluster:
    """The controller in this process, a gateway beside it."""

    def __init__(self, device: str, mps: str, folder: Path, **changes: Any) -> None:
        """`changes` are settings of the controller."""
        gpus = torch.cuda.device_count() if device == "cuda" else 1
        if device == "cpu":
            runtime.start = functools.partial(runtime.start, fake_gpus=gpus)
        # In float32 texts are equal whatever width a round has, on a GPU too.
        usual = ClusterSettings(
            model=str(EMBEDDED / "target"),
            drafter=str(EMBEDDED / "drafter"),
            pairs=PAIRS,
            pairs_per_gpu=1 if gpus >= PAIRS else PAIRS,
            placement="gpu",
            device=device,
            dtype="float32",
            slots=4,
            mps=mps,  # type: ignore[arg-type]  # argparse has checked it
            run_dir=str(folder),
        )
        self.settings = replace(usual, **changes)
        self.app = ClusterApp(self.settings)
        self.gateway: ServiceProcess | None = None
        self._metrics = ""

    async def start(self) -> None:
        """Waits until both pairs serve."""
        bound = await self.app.start()
        self._metrics = bound.metrics
        flags = ["--watch", bound.grpc, "--tokenizer", self.settings.model, "--model", self.settings.model_name]
        self.gateway = ServiceProcess("gateway", ["services.gateway", *flags], Path(FOLDER.name), {})
        await self.until(lambda: all(pair.ready and pair.drafter_pid for pair in self.pairs))

    async def stop(self) -> None:
        """Ends everything."""
        if self.gateway is not None:
            await asyncio.to_thread(self.gateway.stop)
        await self.app.drain()

    @property
    def pairs(self) -> tuple[PairStatus, ...]:
        """What the controller knows."""
        assert self.app._controller is not None
        return self.app._controller.pairs

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits, for a bounded time."""
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await asyncio.sleep(0.05)

    async def gateway_address(self) -> str:
        """Where the gateway listens."""
        assert self.gateway is not None
        return (await asyncio.to_thread(self.gateway.bound, WAIT_S))["grpc"]

    async def by_gateway(self) -> list[int]:
        """A text through the gateway."""
        address = await self.gateway_address()

        def ask() -> list[int]:
            with Client(address) as client:
                return client.generate(TEXT, Options(max_tokens=TOKENS, ignore_eos=True)).tokens

        return await asyncio.to_thread(ask)

    async def by_pair(self, index: int) -> tuple[list[int], int]:
        """A text of one pair, and the rounds that it took."""
        async with SessionClient(self.pairs[index].address) as client:
            stream = await client.start(start("r", IDS, TOKENS))
            rounds = (await stream.ended()).speculation.rounds
        return stream.tokens, rounds

    async def back(self, before: PairStatus, index: int, service: str) -> None:
        """Waits until the controller has started a killed service again and its pair is ready."""
        restarts = f"{service}_restarts"
        await self.until(
            lambda: self.pairs[index].ready and getattr(self.pairs[index], restarts) > getattr(before, restarts)
        )

    def restarts(self) -> dict[str, int]:
        """What the controller's metrics say, by pair and service."""
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=30.0) as answer:
            page = answer.read().decode()
        found = re.findall(
            r'^paceline_cluster_restarts_total\{.*pair="(.+?)",service="(\w+)"\} (\d+)', page, re.MULTILINE
        )
        return {f"{pair} {service}": int(count) for pair, service, count in found}


async def killed(cluster: Cluster, index: int, service: str, texts: tuple[list[int], list[int]]) -> Kill:
    """Kills one service of one pair and waits until it serves as before; texts are the gateway's and the pair's."""
    before, began = cluster.pairs[index], time.monotonic()
    os.kill(getattr(before, f"{service}_pid"), signal.SIGKILL)
    through = await cluster.by_gateway()
    gateway_served_s = time.monotonic() - began
    await cluster.back(before, index, service)
    back_s = time.monotonic() - began
    tokens, rounds = await cluster.by_pair(index)
    async with asyncio.timeout(WAIT_S):
        while rounds >= TOKENS - 1:
            tokens, rounds = await cluster.by_pair(index)
    after = cluster.pairs[index]
    return Kill(
        pair=after.pair_id,
        service=service,
        gateway_served_s=round(gateway_served_s, 2),
        back_s=round(back_s, 2),
        drafts_s=round(time.monotonic() - began, 2),
        same_gpu=after.gpu_uuids == after.drafter_gpu_uuids == before.gpu_uuids,
        same_text=(through, tokens) == texts,
    )


async def examined(cluster: Cluster) -> dict[str, Any]:
    """Everything that is found, in the order in which it is done."""
    placed = [
        {"pair": pair.pair_id, "target": pair.gpu_uuids, "drafter": pair.drafter_gpu_uuids, "sharing": pair.gpu_sharing}
        for pair in cluster.pairs
    ]
    texts = await cluster.by_gateway(), (await cluster.by_pair(0))[0]
    kills = [await killed(cluster, index, service, texts) for index in range(PAIRS) for service in SERVICES]
    return {"placed": placed, "kills": [asdict(kill) for kill in kills], "restarts": cluster.restarts()}


def judged(found: dict[str, Any], pairs_per_gpu: int) -> list[str]:
    """What is wrong; nothing, if all is well."""
    wrong = [
        f"straddles: {pair}"
        for pair in found["placed"]
        if pair["target"] != pair["drafter"] or len(pair["target"]) != 1
    ]
    gpus = {pair["target"] for pair in found["placed"]}
    if len(gpus) != PAIRS // pairs_per_gpu:
        wrong.append(f"{PAIRS} pairs, {pairs_per_gpu} on a GPU, are on {len(gpus)}")
    wrong += [f"not as before: {kill}" for kill in found["kills"] if not kill["same_gpu"] or not kill["same_text"]]
    if len(found["restarts"]) != PAIRS * len(SERVICES) or set(found["restarts"].values()) != {1}:
        wrong.append(f"counted restarts: {found['restarts']}")
    return wrong


async def run(device: str, mps: str) -> tuple[dict[str, Any], list[str]]:
    """One whole run, and what was wrong in it."""
    run_dir = Path(FOLDER.name) / "c"
    run_dir.mkdir(mode=0o700)
    cluster = Cluster(device, mps, run_dir)
    try:
        await cluster.start()
        found = await examined(cluster)
    finally:
        await cluster.stop()
        FOLDER.cleanup()
    per_gpu = cluster.settings.pairs_per_gpu
    return {"pairs_per_gpu": per_gpu, **found}, judged(found, per_gpu)


def circumstances(device: str, mps: str) -> dict[str, Any]:
    """Where this ran; the driver tells the GPU's name, so that this process takes no memory of it."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(query, capture_output=True, text=True, check=True).stdout if device == "cuda" else "cpu"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "test": "ray_pairs",
        "device": ", ".join(names.splitlines()),
        "commit": os.environ.get("BENCH_COMMIT", commit.stdout.strip()),
        "versions": {"torch": torch.__version__, "ray": ray.__version__, "grpcio": grpc.__version__},
        "command": f"python -m tests.integration.deploy.ray_pairs --device {device} --mps {mps}",
    }


def main() -> int:
    """0 when nothing was wrong; the last line of output is one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--mps", choices=("auto", "true", "false"), default="auto")
    parser.add_argument("--save", type=Path)
    chosen = parser.parse_args()
    found, wrong = asyncio.run(run(chosen.device, chosen.mps))
    result = {**circumstances(chosen.device, chosen.mps), **found, "wrong": wrong}
    if chosen.save:
        chosen.save.parent.mkdir(parents=True, exist_ok=True)
        chosen.save.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
