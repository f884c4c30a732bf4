"""Looks at the checkpoints of a stack before anything starts, and finds the folders that all processes get."""

import os
from collections.abc import Callable
from dataclasses import replace
from fnmatch import fnmatch
from functools import partial

from deploy.cluster.settings import ClusterSettings
from deploy.stack import StackError, StackSettings
from services.common.preflight.checks import Asked, problems, tensors
from services.common.preflight.memory import gb, gpus
from services.common.preflight.source import Source
from services.common.serving.hub import CHECKPOINT_FILES, OWN_HEAD, FolderError, local_folder


def resolved(
    settings: StackSettings, cluster: ClusterSettings, tell: Callable[[str], object] = lambda line: None
) -> StackSettings:
    """The settings with the folders of target and drafter: absolute, hub ids fetched or found in the cache.

    `cluster` are the controller's, and `tell` gets the lines of what people should know. Weights are fetched when all
    else is right.

    Raises:
        StackError: something would keep the stack from serving; one line that names the file.
    """
    asked = examined(settings, cluster, tell)
    for source in asked.sources:
        if source.remote:
            tell(f"{source.name} has {gb(fetched_bytes(source))}; what of them is not in the cache is fetched now")
    drafter = OWN_HEAD if asked.drafter == OWN_HEAD else _folder(asked.drafter)
    folders = replace(asked, model=_folder(settings.model), drafter=drafter)
    if any(source.remote for source in asked.sources):
        # What was fetched since then has been judged by its names alone.
        for found in problems(folders, () if asked.weightless else (tensors,)):
            raise StackError(found.line)
    drafted = settings.proposer == "dflash"
    return replace(settings, model=folders.model, drafter=folders.drafter if drafted else settings.drafter)


def examined(settings: StackSettings, cluster: ClusterSettings, tell: Callable[[str], object]) -> Asked:
    """What is to be served, when nothing is found that keeps it from serving; nothing of the weights is fetched.

    Raises:
        StackError: something was found; one line that names the file.
    """
    drafted = settings.proposer == "dflash"
    device = cluster.device or {"cpu": "cpu", "gpu": "cuda", "auto": ""}[cluster.placement]
    asked = Asked(
        model=settings.model,
        drafter=settings.drafter if drafted else "",
        anchored=cluster.drafter_sample_from_anchor,
        device=device,
        dtype=cluster.dtype,
        memory_fraction=cluster.memory_fraction,
        pairs=beside(cluster, device),
        context_limit=cluster.context_limit,
        elsewhere=bool(cluster.ray_address),
        activations=cluster.activations,
        kv_dtype=cluster.kv_dtype,
        expert_bytes=int(cluster.target_settings.get("expert_bytes", 0)),
        weightless=bool(cluster.target_settings.get("random_weights")),
    )
    for found in problems(asked):
        if found.fatal:
            raise StackError(found.line)
        tell(found.line)
    if told := crowded(cluster):
        tell(told)
    return asked


def beside(cluster: ClusterSettings, device: str) -> int:
    """How many pairs share the memory of one device: all where this machine has no GPU."""
    on_cpu = device == "cpu" or not (device or cluster.ray_address or gpus())
    return cluster.pairs if on_cpu else cluster.pairs_per_gpu


def crowded(cluster: ClusterSettings) -> str:
    """A line about threads that would take turns on the cores of this machine; empty where pairs run elsewhere."""
    cores = len(os.sched_getaffinity(0))
    for flag, its in {"target": cluster.target_settings, "drafter": cluster.drafter_settings}.items():
        if not cluster.ray_address and (threads := int(its.get("threads", 0))) > cores:
            crowd = f"{threads} threads take turns on the {cores} cores of this machine"
            return f"--{flag}.threads: {crowd}: give {cores} at most"
    return ""


def fetched_bytes(source: Source) -> int:
    """How much the files of a hub id are that a checkpoint is read from.

    Raises:
        FolderError: the hub does not tell them.
    """
    return sum(size for name, size in source.files.items() if any(map(partial(fnmatch, name), CHECKPOINT_FILES)))


def _folder(name: str) -> str:
    try:
        return str(local_folder(name).absolute()) if name else ""
    except FolderError as error:
        raise StackError(str(error)) from error
