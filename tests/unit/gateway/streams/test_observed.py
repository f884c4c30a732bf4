"""What the log's line of a call holds, whatever its client and its pairs are called."""

import json
import random

from services.common.request.errors import Code
from services.gateway.streams.calls import Call
from services.gateway.streams.observed import fields

TEXTS = ("", "a", 'quoted "', "back\\slash", "line\nend", "{}, {a: b}", "\u00e9\u65e5\U0001f600", "\x00\x7f", "\ud800")


def call(chance: random.Random) -> Call:
    """A call of which anything may be known."""

    def text() -> str:
        return chance.choice(TEXTS)

    made = Call(text(), tenant=text(), model=text(), code=chance.choice([*Code]), reason=text())
    made.status, made.duration_s = chance.choice([0, 200, 499]), chance.expovariate(1.0)
    made.finish_reasons = [text() for _ in range(chance.randrange(3))]
    made.prompt_tokens, made.completion_tokens = chance.choice([0, 7]), chance.randrange(9)
    made.cached_tokens, made.migrations, made.rounds = (chance.randrange(9) for _ in range(3))
    made.drafted, made.accepted = chance.randrange(9), chance.randrange(9)
    made.first_token_s = chance.choice([None, 0.0, 1e-7, chance.random(), 12345.678])
    made.pairs = [text() for _ in range(chance.randrange(3))]
    return made


def wanted(call: Call) -> dict[str, object]:
    """The names and values of the page of logs, with times to a microsecond."""
    found: dict[str, object] = {"tenant": call.tenant, "model": call.model, "endpoint": call.endpoint}
    found |= {"code": call.code.name, "duration_s": round(call.duration_s, 6)}
    found |= {name: value for name, value in (("status", call.status), ("reason", call.reason)) if value}
    if not call.prompt_tokens:
        return found
    same = ("prompt_tokens", "completion_tokens", "cached_tokens", "migrations", "rounds", "drafted", "accepted")
    found |= {name: getattr(call, name) for name in same}
    found["first_token_s"] = None if call.first_token_s is None else round(call.first_token_s, 6)
    return found | {"finish_reason": ",".join(call.finish_reasons), "served_by": ",".join(call.pairs)}


def test_a_line_says_what_its_call_knows(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(2000):
        made = call(chance)
        line = "{" + fields(made) + "}"
        assert "\n" not in line and line.isascii()
        assert json.loads(line) == wanted(made)
