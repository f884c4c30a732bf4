"""One request on a FakeTarget."""

import hashlib

from services.common.pb.paceline.v1 import target_pb2, types_pb2


def fake_token(seed: int, position: int, vocab_size: int) -> int:
    """The token at an absolute position."""
    digest = hashlib.sha256(f"{seed} {position}".encode()).digest()
    return int.from_bytes(digest[:4], "little") % vocab_size


class FakeRequest:
    """Counts its rounds as a target does: the first token is the prefill's, every later update is a round."""

    def __init__(self, start: target_pb2.Start, info: types_pb2.ModelInfo, script: tuple[int, ...] = ()) -> None:
        self.start = start
        self._script = script
        self._info = info
        self._committed = len(start.token_ids) - start.prompt_length
        self._resumed = self._committed
        self._stats = types_pb2.SpeculationStats()

    def step(self, burst: int) -> target_pb2.RequestUpdate:
        """Commits 1 to `burst` tokens; how many depends on the position only."""
        first = self._committed == self._resumed
        position = self._committed
        limit = self.start.stopping.max_tokens
        wanted = 1 if first else 1 + fake_token(7, position, burst)
        tokens: list[int] = []
        reason = types_pb2.FINISH_REASON_UNSPECIFIED
        while len(tokens) < wanted and reason == types_pb2.FINISH_REASON_UNSPECIFIED:
            tokens.append(self._token())
            self._committed += 1
            reason = self._reason(tokens[-1], limit)
        if not first:
            self._count(len(tokens) - 1, burst - 1)
        update = target_pb2.RequestUpdate(
            request_id=self.start.request_id,
            epoch=1,
            position=position,
            token_ids=tokens,
            logprobs=self._logprobs(tokens),
            drafted=0 if first else burst - 1,
            accepted=0 if first else len(tokens) - 1,
        )
        if reason != types_pb2.FINISH_REASON_UNSPECIFIED:
            update.end.CopyFrom(self._end(reason))
        return update

    def moved(self) -> target_pb2.RequestUpdate:
        """Leaves for another target."""
        end = self._end(types_pb2.FINISH_REASON_UNSPECIFIED)
        end.moved = True
        return target_pb2.RequestUpdate(request_id=self.start.request_id, epoch=1, position=self._committed, end=end)

    def ended(self, reason: types_pb2.FinishReason.ValueType) -> target_pb2.RequestUpdate:
        """Ends without tokens."""
        return target_pb2.RequestUpdate(
            request_id=self.start.request_id, epoch=1, position=self._committed, end=self._end(reason)
        )

    def _token(self) -> int:
        if self._committed < len(self._script):
            return self._script[self._committed]
        position = self.start.prompt_length + self._committed
        return fake_token(self.start.sampling.seed, position, self._info.vocab_size)

    def _reason(self, token: int, limit: int) -> types_pb2.FinishReason.ValueType:
        stops = {*self.start.stopping.stop_token_ids}
        if not self.start.stopping.ignore_eos:
            stops |= {*self._info.eos_token_ids}
        if token in stops and self._committed > self.start.stopping.min_tokens:
            return types_pb2.FINISH_REASON_STOP_TOKEN
        if self._committed >= limit:
            return types_pb2.FINISH_REASON_LENGTH
        full = self.start.prompt_length + self._committed >= self._info.context_limit
        return types_pb2.FINISH_REASON_CONTEXT if full else types_pb2.FINISH_REASON_UNSPECIFIED

    def _count(self, accepted: int, drafted: int) -> None:
        self._stats.rounds += 1
        self._stats.drafted += drafted
        self._stats.accepted += accepted
        while len(self._stats.accepted_histogram) <= accepted:
            self._stats.accepted_histogram.append(0)
        self._stats.accepted_histogram[accepted] += 1
        self._stats.rounds_by_width[drafted + 1] += 1

    def _logprobs(self, tokens: list[int]) -> list[types_pb2.PositionLogprobs]:
        if not self.start.HasField("logprobs"):
            return []
        best = [types_pb2.TokenLogprob(token_id=rank, logprob=-float(rank)) for rank in range(self.start.logprobs)]
        return [
            types_pb2.PositionLogprobs(chosen=types_pb2.TokenLogprob(token_id=one, logprob=-1.0), top=best)
            for one in tokens
        ]

    def _end(self, reason: types_pb2.FinishReason.ValueType) -> target_pb2.RequestEnd:
        length = self.start.prompt_length
        usage = types_pb2.Usage(prompt_tokens=length, cached_tokens=length - 1, completion_tokens=self._committed)
        return target_pb2.RequestEnd(finish_reason=reason, usage=usage, speculation=self._stats)
