"""Settings of the two services of a pair, derived from those of the cluster."""

import os
from pathlib import Path

from deploy.cluster.node import AUTO, PORTS_PER_PAIR
from deploy.cluster.pair import PairSpec, sockets
from deploy.cluster.runtime import STAND_IN
from deploy.cluster.settings import ClusterSettings
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

# What a target needs after the grace of its requests: notice of readiness, moving the rest, closing.
MOVE_S = 4.0


def default_dtype(device: str) -> str:
    """bfloat16 on a GPU, float32 on a CPU."""
    return "bfloat16" if device.startswith("cuda") else "float32"


def core_of(settings: ClusterSettings, index: int, device: str) -> int:
    """The core on which a pair without a GPU takes its turns; -1 where there are too few cores to give one away."""
    cores = sorted(os.sched_getaffinity(0))
    if device != "cpu" or not 1 <= settings.pairs < len(cores):
        return -1
    return cores[index % len(cores)]


def pair_spec(settings: ClusterSettings, index: int, resource: str, run_dir: Path) -> PairSpec:
    """What to place as pair number index; its id is stable over restarts."""
    pair_id = f"{settings.pair_prefix}pair-{index}"
    folder = sockets(run_dir, f"pair-{index}")
    socket = f"unix:{folder / 'drafter.sock'}"
    device = settings.device or ("cpu" if resource == STAND_IN else "cuda")
    return PairSpec(
        pair_id=pair_id,
        target=_target(settings, index, pair_id, folder, socket, device),
        drafter=None if settings.proposer == "none" else _drafter(settings, index, pair_id, socket, device),
        resource=resource,
        target_share=settings.target_share,
    )


def _target(
    settings: ClusterSettings, index: int, pair_id: str, folder: Path, socket: str, device: str
) -> TargetSettings:
    port = first_port(settings, index)
    return TargetSettings(
        model=settings.model,
        drafter_model=settings.drafter if settings.proposer == "dflash" else "none",
        drafter_address="" if settings.proposer == "none" else socket,
        model_name=settings.model_name,
        pair_id=pair_id,
        device=device,
        dtype=settings.dtype or default_dtype(device),
        core=core_of(settings, index, device),
        slots=settings.slots,
        context_limit=settings.context_limit,
        memory_fraction=settings.memory_fraction,
        adaptive=settings.adaptive,
        run_dir=str(folder),
        grpc=f"{settings.host}:{port}",
        health=f"{settings.host}:0",
        metrics=f"{settings.host}:{port + 1 if port else 0}",
        watchdog_s=settings.watchdog_s,
        drain_grace_s=max(0.0, settings.drain_s - MOVE_S),
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        tls_ca=settings.tls_ca,
    )


def first_port(settings: ClusterSettings, index: int) -> int:
    """First of the three ports of a pair (target, its metrics, the drafter's metrics); 0 lets the system choose."""
    if settings.host == AUTO:
        return settings.base_port
    return settings.base_port + PORTS_PER_PAIR * index if settings.base_port else 0


def _drafter(settings: ClusterSettings, index: int, pair_id: str, socket: str, device: str) -> DrafterSettings:
    port = first_port(settings, index)
    return DrafterSettings(
        model=settings.drafter if settings.proposer == "dflash" else "",
        proposer=settings.proposer,
        model_name=settings.model_name,
        pair_id=pair_id,
        device=device,
        dtype=settings.dtype or default_dtype(device),
        core=core_of(settings, index, device),
        grpc=socket,
        health=f"{settings.host}:0",
        metrics=f"{settings.host}:{port + 2 if port else 0}",
    )
