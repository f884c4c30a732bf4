"""Settings of the two services of a pair, derived from those of the cluster; imports no ray."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deploy.cluster import sockets
from deploy.cluster.node import AUTO, PORTS_PER_PAIR
from deploy.cluster.settings import ClusterSettings
from services.common.preflight.memory import gpus
from services.common.request.errors import PacelineError
from services.common.serving.addresses import host_port
from services.common.serving.hub import OWN_HEAD
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

# What a target needs after the grace of its requests: notice of readiness, moving the rest, closing.
MOVE_S = 4.0


def default_dtype(device: str) -> str:
    """bfloat16 on a GPU, float32 on a CPU."""
    return "bfloat16" if device.startswith("cuda") else "float32"


def drafter_weights(settings: ClusterSettings, device: str) -> str:
    """What a drafter's products read: unless it is chosen, eight bits beside a target of bfloat16 on a GPU.

    A round there waits for the bytes of weights, and the drafter's are a tenth of them.
    """
    bfloat16 = device.startswith("cuda") and (settings.dtype or default_dtype(device)) == "bfloat16"
    chosen = settings.drafter_weights != "auto" or settings.proposer != "dflash" or "dtype" in settings.target_settings
    return "int8" if bfloat16 and not chosen else settings.drafter_weights


def pinned(core: int, own: Mapping[str, Any]) -> int:
    """The core of a service with settings of its own: more threads than one are not kept on one core."""
    return core if own.get("threads", 1) == 1 else -1


def pair_id(settings: ClusterSettings, index: int) -> str:
    """The id of pair number index, which is stable over restarts."""
    return f"{settings.pair_prefix}pair-{index}"


def pair_folder(run_dir: Path, index: int) -> Path:
    """The folder that holds the Unix sockets of a pair; its path is short."""
    return run_dir / f"pair-{index}"


def drafter_socket(run_dir: Path, index: int) -> str:
    """Where the drafter of a pair listens."""
    return f"unix:{pair_folder(run_dir, index) / 'drafter.sock'}"


def target_address(settings: ClusterSettings, index: int, run_dir: Path) -> str:
    """Where the target of a pair listens."""
    if not settings.host:
        return f"unix:{pair_folder(run_dir, index) / 'target.sock'}"
    return host_port(settings.host, first_port(settings, index))


def plain_address(settings: ClusterSettings, port: int) -> str:
    """Where health or metrics of a pair listen."""
    return host_port(settings.host or "127.0.0.1", port)


def target_settings(
    settings: ClusterSettings, index: int, run_dir: Path, device: str, core: int = -1
) -> TargetSettings:
    """Settings of the target of pair number index, which has a core for itself or none."""
    port = first_port(settings, index)
    derived = TargetSettings(
        model=settings.model,
        drafter_model=settings.drafter if settings.proposer == "dflash" else "none",
        drafter_weights=drafter_weights(settings, device),
        drafter_sample_from_anchor=settings.drafter_sample_from_anchor,
        drafter_address="" if settings.proposer == "none" else drafter_socket(run_dir, index),
        model_name=settings.model_name,
        pair_id=pair_id(settings, index),
        device=device,
        dtype=settings.dtype or default_dtype(device),
        core=pinned(core, settings.target_settings),
        slots=settings.slots,
        context_limit=settings.context_limit,
        kv_dtype=settings.kv_dtype,
        activations=settings.activations,
        memory_fraction=settings.memory_fraction / settings.pairs_per_gpu,
        adaptive=settings.adaptive,
        run_dir=str(pair_folder(run_dir, index)),
        grpc=target_address(settings, index, run_dir),
        health=plain_address(settings, 0),
        metrics=plain_address(settings, port + 1 if port else 0),
        watchdog_s=settings.watchdog_s,
        drain_grace_s=max(0.0, settings.drain_s - MOVE_S),
        tls_cert=settings.tls_cert,
        tls_key=settings.tls_key,
        tls_ca=settings.tls_ca,
        target_client_names=settings.target_client_names,
        session_secret=settings.session_secret,
        session_secret_file=os.path.abspath(settings.session_secret_file) if settings.session_secret_file else "",
        insecure=settings.insecure,
    )
    return replace(derived, **settings.target_settings)


def first_port(settings: ClusterSettings, index: int) -> int:
    """First of the three ports of a pair (target, its metrics, the drafter's metrics); 0 lets the system choose."""
    if settings.host == AUTO:
        return settings.base_port
    return settings.base_port + PORTS_PER_PAIR * index if settings.base_port else 0


def drafter_settings(
    settings: ClusterSettings, index: int, run_dir: Path, device: str, core: int = -1
) -> DrafterSettings:
    """Settings of the drafter of pair number index, on its target's core."""
    port = first_port(settings, index)
    derived = DrafterSettings(
        model=_drafter_folder(settings) if settings.proposer == "dflash" else "",
        proposer=settings.proposer,
        weights=drafter_weights(settings, device),
        sample_from_anchor=settings.drafter_sample_from_anchor,
        model_name=settings.model_name,
        pair_id=pair_id(settings, index),
        device=device,
        dtype=settings.dtype or default_dtype(device),
        core=pinned(core, settings.drafter_settings),
        grpc=drafter_socket(run_dir, index),
        health=plain_address(settings, 0),
        metrics=plain_address(settings, port + 2 if port else 0),
    )
    return replace(derived, **settings.drafter_settings)


def _drafter_folder(settings: ClusterSettings) -> str:
    return settings.model if settings.drafter == OWN_HEAD else settings.drafter


def check(settings: ClusterSettings) -> None:
    """Refuses what no target or no drafter can be started with.

    Raises:
        ValueError: names the service, the setting and what is wrong.
    """
    if settings.ray_address not in ("", "auto") and not settings.ray_address.rpartition(":")[2].isdecimal():
        raise ValueError(f"ray_address: {settings.ray_address!r} is no address of a Ray: host:port, or auto")
    if not settings.ray_address:
        sockets.refuse_long(settings.run_dir)
    refusals = {device: _refusal(settings, device) for device in _devices(settings)}
    alone = "cpu" if refusals.get("cpu") and not all(refusals.values()) and _no_gpu(settings) else ""
    if alone or all(refusals.values()):
        raise ValueError(refusals[alone or next(iter(refusals))])


def _no_gpu(settings: ClusterSettings) -> bool:
    """Whether Ray can find none, which is known where pairs run on this machine."""
    if settings.ray_address or gpus():
        return False
    import torch  # takes a second, which only what a CPU refuses waits for

    return not torch.cuda.is_available()


def _devices(settings: ClusterSettings) -> tuple[str, ...]:
    """The devices on which pairs may run; for auto Ray decides, when it has looked for GPUs."""
    if settings.device:
        return (settings.device,)
    return {"cpu": ("cpu",), "gpu": ("cuda",), "auto": ("cpu", "cuda")}[settings.placement]


def _refusal(settings: ClusterSettings, device: str) -> str:
    builders = {"target": target_settings} | ({"drafter": drafter_settings} if settings.proposer != "none" else {})
    for service, build in builders.items():
        try:
            build(settings, 0, Path(), device)
        except (PacelineError, ValueError) as error:
            return f"{service}: {error}"
    return ""
