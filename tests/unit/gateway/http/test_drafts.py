"""Which tokens of a delta were drafts: the first of each round, however many rounds a delta joins."""

from services.gateway.http.answers.drafts import DraftedTokens
from services.gateway.streams.events import Delta
from services.gateway.targets.attempt import Outbox
from services.gateway.targets.messages import Update

PIECES = (b"a", b"b", b"c", "\u00e9".encode()[:1], "\u00e9".encode()[1:])


def spell(token: int) -> tuple[str, bytes]:
    return PIECES[token].decode(errors="replace"), PIECES[token]


def told(delta: Delta) -> str:
    """Texts of the tokens; those of drafts in brackets."""
    tokens = DraftedTokens(spell).of(0, delta)["tokens"]
    return " ".join(f"[{one['text']}]" if one["accepted"] else one["text"] for one in tokens)


async def joined(*rounds: Update) -> Delta:
    """The delta of rounds that piled up."""
    outbox = Outbox(100, lambda: None)
    for update in rounds:
        outbox.put(update)
    update = await outbox.take()
    return Delta(0, update.token_ids, "", (), update.drafted, update.accepted, update.rounds)


async def test_a_round_begins_with_its_accepted_drafts() -> None:
    assert told(await joined(Update(0, (0, 1, 2), drafted=3, accepted=2))) == "[a] [b] c"
    assert told(await joined(Update(0, (0,), drafted=3))) == "a"


async def test_rounds_that_were_joined_keep_their_drafts_apart() -> None:
    first, second = Update(0, (0, 1), drafted=3, accepted=1), Update(2, (2, 0, 1), drafted=3, accepted=2)
    assert told(await joined(first, second)) == "[a] b [c] [a] b"


async def test_tokens_behind_a_stop_string_are_not_told() -> None:
    delta = await joined(Update(0, (0, 1), accepted=1), Update(2, (2, 0, 1), accepted=2))
    cut = Delta(0, delta.token_ids[:3], "", (), 0, delta.accepted, delta.rounds)
    assert told(cut) == "[a] b [c]"


async def test_a_character_of_two_tokens_stands_with_the_one_that_ends_it() -> None:
    tokens = DraftedTokens(spell)
    first = tokens.of(0, await joined(Update(0, (0, 3), accepted=1)))
    other = tokens.of(1, await joined(Update(0, (0,))))
    second = tokens.of(0, await joined(Update(2, (4,))))
    assert [one["text"] for each in (first, other, second) for one in each["tokens"]] == ["a", "", "a", "\u00e9"]
