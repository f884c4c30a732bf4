"""Attaches a drafter once while the target captures its steps, so that it compiles and captures its own meanwhile.

Nothing is drafted by that attachment: it ends before rows are compared and times taken. The one that serves comes
later, and finds all kernels in the drafter's memory.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import grpc

from services.common.pair.attach import AttachOffer
from services.common.pair.attach_convert import offer_to_pb
from services.common.pb.paceline.v1 import drafter_pb2_grpc as rpc
from services.target.drafting.attacher import AttacherSettings
from services.target.drafting.handoff.generations import Generations
from services.target.drafting.offer import ArenaOffers

_LOG = logging.getLogger(__name__)
_LOOK_S = 0.1
_TIMEOUT_S = 60.0


@contextmanager
def rehearsed(
    settings: AttacherSettings, offers: ArenaOffers, generations: Generations, sha256: Callable[[], str]
) -> Iterator[None]:
    """Attaches the drafter at the address beside the block, once it is there; the end waits for it if it has begun.

    `sha256` tells the hash of the shared weights; the drafter waits for it, and captures do not.
    Whatever fails is told in the log alone: the attachment that serves will tell it again.
    """
    generation, over = generations.take(), threading.Event()
    with offers.offer(generation) as offer:
        thread = threading.Thread(target=_rehearse, args=(settings, offer, sha256, over), name="rehearsal")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            generations.free(generation)


def _rehearse(settings: AttacherSettings, offer: AttachOffer, sha256: Callable[[], str], over: threading.Event) -> None:
    try:
        request = offer_to_pb(replace(offer, embedding_sha256=sha256()))
        with settings.peers.connect_sync(settings.address) as channel:
            stub = rpc.DrafterServiceStub(channel)
            while not over.wait(_LOOK_S):
                try:
                    stub.Attach(request, timeout=_TIMEOUT_S)
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:  # it is not there, or still reads
                        raise
                    continue
                # An attachment ends with its stream of rounds: this one has none.
                for _ in stub.Pace(iter(()), timeout=_TIMEOUT_S):
                    pass
                _LOG.info("drafter rehearsed")
                return
    except (grpc.RpcError, OSError, RuntimeError) as error:
        _LOG.info("the drafter did not rehearse: %s", error)
