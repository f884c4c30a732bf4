"""A process that has imported what services import and built two pairs once, and forks one whenever it is asked.

Its arguments are the descriptor of a listening socket and the modules. It sends a byte to each who connects when that
is done, or ends at once if there is more than one thread; it ends when nobody is connected any more. What the first
pair of a process costs above others is TorchScript: types of modules and their functions are kept by the process, so
forked services find them. It is asked by a line of JSON with the module, its arguments, its variables and its folder,
and three descriptors: output, errors, and where it writes the service's id and, in the end, its exit code.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import shutil
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from deploy.stack import EMBEDDED
from tests.support.quick_script import install
from tests.support.tiny_checkpoints import TinyPair, write_tiny

MOST_BYTES = 1 << 18
TARGET = "services.target.app"


def main(descriptor: int, modules: Sequence[str]) -> None:
    """Forks until nobody is connected; a service lives on."""
    listener = socket.socket(fileno=descriptor)
    for module in modules:
        importlib.import_module(module)
    if TARGET in modules:
        install()
        build_pairs()
        gc.collect()
    folder = Path(listener.getsockname()).parent
    try:
        if len(list(Path("/proc/self/task").iterdir())) == 1:
            gc.freeze()
            _serve(listener)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(listener: socket.socket) -> None:
    waiting, connected = selectors.DefaultSelector(), 0
    waiting.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is listener:
                client, _ = listener.accept()
                client.send(b"1")
                waiting.register(client, selectors.EVENT_READ)
                connected += 1
            elif isinstance(key.fileobj, socket.socket):
                if not _forked(key.fileobj, waiting):
                    waiting.unregister(key.fileobj)
                    key.fileobj.close()
                    connected -= 1
            else:
                waiting.unregister(key.fd)
                _tell_end(key.fd, *key.data)
        if not connected:
            return


def _forked(client: socket.socket, waiting: selectors.BaseSelector) -> bool:
    """Forks the service that a client asks for; false when it asks for none any more."""
    try:
        data, descriptors, _, _ = socket.recv_fds(client, MOST_BYTES, 3)
    except ConnectionError:
        return False
    if not data:
        return False
    pid = _fork(json.loads(data), descriptors)
    os.write(descriptors[2], b"%d\n" % pid)
    waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[2]))
    for each in descriptors[:2]:
        os.close(each)
    return True


def build_pairs() -> None:
    """Builds what targets and drafters serve with, and leaves it; most services have weights like the embedded ones."""
    with tempfile.TemporaryDirectory(prefix="pl-") as name:
        build_a_pair(write_tiny(Path(name)), name)
        build_a_pair(TinyPair(EMBEDDED / "target", EMBEDDED / "drafter"), name)


def build_a_pair(models: TinyPair, folder: str) -> None:
    """Builds both and drafts once, for what is computed first is compiled first."""
    from services.common.device.graph import StepGraphs
    from services.drafter.arena_view import ArenaView
    from services.drafter.attachment import DraftRunner
    from services.drafter.handoff.host import HostHandoff
    from services.drafter.proposers.build import build_proposer
    from services.drafter.settings import DrafterSettings
    from services.target.build_device import build_worker
    from services.target.settings import TargetSettings

    target, drafter = str(models.target), str(models.drafter)
    settings = TargetSettings(
        model=target, drafter_model=drafter, drafter_address="unix:none", slots=1, threads=1, run_dir=folder
    )
    worker = build_worker(settings, os.getpid())
    proposer = build_proposer(DrafterSettings(model=drafter, threads=1))
    shared = ArenaView.of(worker.arena, worker.runner.pool.settings.block_size)
    proposer.check(shared)
    handoff = HostHandoff(worker.runner.pool.device)
    DraftRunner(shared, proposer, 1, StepGraphs("cpu"), handoff).warm_up((1,), worker.runner.pool.settings.widths[-1:])


def _tell_end(watched: int, pid: int, told: int) -> None:
    """Reap a service and hand its code to whoever asked for it, if somebody still listens."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        os.write(told, b"%d\n" % code)
    except BrokenPipeError:
        pass
    os.close(told)
    os.close(watched)


def _fork(service: dict[str, Any], descriptors: list[int]) -> int:
    pid = os.fork()
    if pid == 0:
        _become(service, descriptors)
    return pid


def _become(service: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Be the service as a fresh interpreter would be."""
    code: object = 1
    try:
        os.setsid()
        for number, descriptor in ((1, descriptors[0]), (2, descriptors[1])):
            os.dup2(descriptor, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.chdir(service["folder"])
        os.environ.clear()
        os.environ.update(service["environment"])
        module, *sys.argv[1:] = service["command"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
