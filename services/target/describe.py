"""Describe: the target's state as a message."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from services.common.pair.attach_convert import info_to_pb
from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.pb.paceline.v1 import types_pb2 as types
from services.common.request.limits import PROTOCOL_VERSION
from services.target.build_device import Worker
from services.target.core.width import Width, order_of
from services.target.device.exact.check import Exactness
from services.target.drafting.attacher import Attacher
from services.target.engine.engine import Engine
from services.target.engine.recorder import FlightRecorder, RoundEntry
from services.target.sessions.frames import load_to_pb, numerics_to_pb
from services.target.sessions.served_model import ServedModel
from services.target.sizing.budget import MemoryBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Describer:
    """Reads the state of the target's parts; any thread may call it."""

    pair_id: str
    worker: Worker
    engine: Engine
    recorder: FlightRecorder
    attacher: Attacher | None

    @property
    def proposer(self) -> str:
        """Proposer kind of the drafter last attached, or none."""
        info = self.attacher.info if self.attacher is not None else None
        return info.proposer if info is not None else "none"

    def load(self) -> pb.Load:
        """The load after the latest round."""
        return load_to_pb(self.engine.load, self.engine.drafts.speculating)

    def describe(self) -> pb.TargetServiceDescribeResponse:
        """What the target serves, and how it stands at present."""
        attacher, graphs, cost = self.attacher, self.worker.graphs, self.worker.capture_cost
        return pb.TargetServiceDescribeResponse(
            protocol_version=PROTOCOL_VERSION,
            pair_id=self.pair_id,
            model=self.worker.model.to_pb(self.proposer),
            load=self.load(),
            attachment="none" if attacher is None else attacher.state.value,
            generation=0 if attacher is None else attacher.generation,
            handoff_mode=self.worker.handoff.in_use,
            gpu_sharing=self.worker.gpu_sharing,
            budget=_budget_to_pb(self.worker.budget),
            rounds=[_round_to_pb(entry) for entry in self.recorder.entries()],
            costs=_costs_to_pb(self.worker.costs()),
            graphs=pb.GraphCounters(
                captures=graphs.captures,
                replays=graphs.replays,
                recaptures=graphs.recaptures,
                reallocations=graphs.reallocations,
                capture_seconds=cost.seconds,
                held_bytes=cost.held_bytes,
            ),
            synthetic_acceptance=self.worker.synthetic_acceptance,
            features=self.worker.model.features,
            drafter=None if attacher is None or attacher.info is None else info_to_pb(attacher.info),
            recommended_sampling=_sampling_to_pb(self.worker.model),
            numerics=numerics_to_pb(self.worker.numerics),
            exactness=exactness_to_pb(self.worker.exactness),
        )


def exactness_to_pb(exactness: Exactness) -> pb.Exactness:
    """What the check at start found, as a message."""
    found = exactness.verdict
    return pb.Exactness(
        mode=exactness.mode,
        unchecked=exactness.unchecked,
        shapes=0 if found is None else found.shapes,
        mended=() if found is None else found.mended,
        differing=() if found is None else found.differing,
        kept=exactness.kept,
    )


def _sampling_to_pb(model: ServedModel) -> types.Sampling:
    sampling = types.Sampling()
    for name, value in model.recommended_sampling:
        setattr(sampling, name, int(value) if name == "top_k" else value)
    return sampling


def _costs_to_pb(costs: Mapping[tuple[int, Width], float]) -> list[pb.RoundCost]:
    rows = sorted(
        (bucket, *order_of(width)[:2], cost) for (bucket, width), cost in costs.items() if order_of(width)[1] < 2
    )
    return [
        pb.RoundCost(bucket=bucket, width=width, nodes=bool(nodes), micros=cost) for bucket, width, nodes, cost in rows
    ]


def _budget_to_pb(budget: MemoryBudget) -> pb.Budget:
    per_token = budget.terms.per_token
    return pb.Budget(
        fixed_bytes=budget.terms.fixed_bytes,
        per_slot_bytes=budget.terms.slot_bytes,
        target_token_bytes=per_token["target_kv"],
        draft_token_bytes=per_token.get("draft_kv", 0),
        slots=budget.slots,
        blocks=budget.blocks,
        block_size=budget.block_size,
        total_bytes=budget.total_bytes,
    )


def _round_to_pb(entry: RoundEntry) -> pb.RoundRecord:
    return pb.RoundRecord(
        number=entry.number,
        width=entry.width,
        nodes=entry.nodes,
        requests=entry.requests,
        committed=entry.committed,
        accepted=entry.accepted,
        prefilled=entry.prefilled,
        draft_us=entry.draft_us,
        verify_us=entry.verify_us,
        host_us=entry.host_us,
        fallback=entry.fallback,
        age_us=int((time.monotonic() - entry.ended) * 1e6),
    )
