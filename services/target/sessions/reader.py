"""Passes what a gateway sends to the engine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from services.common.pb.paceline.v1 import target_pb2 as pb
from services.common.request.errors import PacelineError, invalid_field, unsupported
from services.common.request.grammar import Grammar
from services.target.core.commands import Cancel, CheckKey, Refuse, Start
from services.target.sessions.sessions import GatewaySession, launched
from services.target.sessions.starts import MAX_REQUEST_ID_BYTES, rule_from_pb, start_from_pb
from services.target.sessions.tally import Bounds, Granted, Used

if TYPE_CHECKING:
    from services.target.sessions.service import ServiceParts


class Reader:
    """The frames of one session."""

    def __init__(self, parts: ServiceParts, session: GatewaySession) -> None:
        self._parts, self._session = parts, session

    async def read(self, frames: AsyncIterator[pb.SessionRequest]) -> None:
        """Passes the gateway's frames to the engine; their end ends the session."""
        launching = self._parts.launching
        try:
            async for frame in frames:
                if launching.begun:
                    await launched(launching)
                await self._take(frame)
        finally:
            self._session.close()

    async def _take(self, frame: pb.SessionRequest) -> None:
        kind = frame.WhichOneof("frame")
        if kind == "start":
            await self._start(frame.start)
        elif kind == "cancel":
            for one in (frame.cancel, *frame.cancel.others):
                self._parts.submit(Cancel(self._session.number, one.request_id, one.tokens_kept, one.reason))
        elif kind == "ask":
            ask = frame.ask
            _check_id(ask.request_id)
            self._parts.submit(
                CheckKey(self._session.number, ask.request_id, ask.tenant, ask.idempotency_key, ask.owner, ask.ended)
            )
        elif kind == "use":
            self._use(frame.use)
        else:
            raise invalid_field("frame", "must be start, cancel, ask or use after hello")

    def _use(self, use: pb.Use) -> None:
        """Counts a tenant; the engine has no part in it."""
        sessions, tally = self._parts.sessions, self._parts.sessions.tally
        if use.claims:
            claimed = Granted(use.number, use.claimed_requests or 1, use.claimed_tokens)
            most = Bounds(use.most_requests, use.most_tokens)
            standing = tally.claim(self._session.number, use.tenant, claimed, most)
        else:
            heard = use.heard if use.HasField("heard") else None
            standing = tally.note(self._session.number, use.tenant, Used(use.requests, use.tokens), heard)
        sessions.stand(self._session, use.number, standing)

    async def _start(self, start: pb.Start) -> None:
        """Submits a request, or refuses it alone: other requests of the session go on.

        Frames behind one whose grammar is compiled wait for it, so that a cancellation never comes too early.
        """
        _check_id(start.request_id)
        parts, now = self._parts, time.monotonic()
        self._session.expect(start.request_id)
        try:
            grammar = await self._grammar(start) if start.HasField("rule") else None
            spec = start_from_pb(start, parts.model.bounds, parts.default_max_tokens, parts.max_request_s, now, grammar)
        except PacelineError as error:
            parts.submit(Refuse(self._session.number, start.request_id, error))
            return
        parts.submit(Start(self._session.number, spec))

    async def _grammar(self, start: pb.Start) -> Grammar:
        """Compiles in a thread, although the gateway has done it too: one validator for both (I8)."""
        model = self._parts.model
        rule = rule_from_pb(start.rule, model.bounds)
        if not rule.grammar:
            return Grammar(rule, None, frozenset(model.eos_token_ids))
        if model.grammars is None:
            raise unsupported("rule", "the checkpoint of this target has no tokenizer that grammars can use")
        return await asyncio.to_thread(model.grammars.grammar, rule)


def _check_id(request_id: str) -> None:
    if not 0 < len(request_id.encode()) <= MAX_REQUEST_ID_BYTES:
        raise invalid_field("request_id", f"must have 1 to {MAX_REQUEST_ID_BYTES} bytes")
