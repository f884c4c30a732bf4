"""GET /v1/paceline/status: how busy the pairs are, in the words of GetStatus."""

from services.gateway.http.schema.replies import ActivityReply, PairReply, StatusReply
from services.gateway.http.server.exchange import Exchange, encoded
from services.gateway.streams.request_factory import RequestFactory
from services.gateway.targets.messages import Load
from services.gateway.targets.status import Pace, PairState, StatusBoard
from services.gateway.tenancy.auth import ANYBODY, current_tenant


class StatusPage:
    """The status; tenants learn totals only."""

    def __init__(self, front: RequestFactory, board: StatusBoard) -> None:
        """`front` knows the model's public name."""
        self._front = front
        self._board = board

    async def __call__(self, exchange: Exchange) -> None:
        """Tells the status, at most half a second old."""
        found = await self._board.look()
        reply: StatusReply = {
            "model": self._front.served,
            "models": self._front.names,
            "pairs": len(found.pairs),
            "ready_pairs": sum(pair.ready for pair in found.pairs),
            "total": _activity(found.load, found.pace),
            "each": [_pair(pair) for pair in found.pairs] if current_tenant() is ANYBODY else [],
        }
        await exchange.reply(encoded(reply), headers=[(b"cache-control", b"no-store")])


def _pair(pair: PairState) -> PairReply:
    load = pair.load or Load(slots=0)
    return {
        "pair_id": pair.pair_id,
        "ready": pair.ready,
        "speculating": load.speculating,
        "proposer": pair.proposer,
        "model": pair.model,
        "away": pair.away,
        "activity": _activity(load, pair.pace),
    }


def _activity(load: Load, pace: Pace) -> ActivityReply:
    return {
        "running": load.running,
        "waiting": load.waiting,
        "slots": load.slots,
        "queued_tokens": load.queued_tokens,
        "free_blocks": load.free_blocks,
        "total_blocks": load.total_blocks,
        "tokens_per_second": pace.tokens_per_second,
        "tokens_per_round": pace.tokens_per_round,
        "rounds_by_width": {str(width): count for width, count in sorted(pace.by_width.items())},
    }
