"""Which tokens of an output were drafts."""

import codecs
from collections import defaultdict
from collections.abc import Iterator

from services.gateway.http.answers.logprobs import Spell
from services.gateway.http.schema.replies import Drafts
from services.gateway.streams.events import Delta


class DraftedTokens:
    """Tells the tokens of every delta as text; characters cut between tokens stand with the token that ends them."""

    def __init__(self, spell: Spell) -> None:
        """No token has come yet."""
        self._spell = spell
        self._decoders: defaultdict[int, codecs.IncrementalDecoder] = defaultdict(_decoder)

    def of(self, choice: int, delta: Delta) -> Drafts:
        """What a chunk tells of a delta of a choice."""
        decoder = self._decoders[choice]
        texts = [decoder.decode(self._spell(token)[1]) for token in delta.token_ids]
        tokens = zip(texts, _accepted(delta), strict=False)
        return {
            "drafted": delta.drafted,
            "accepted": delta.accepted,
            "tokens": [{"text": text, "accepted": accepted} for text, accepted in tokens],
        }


def _decoder() -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder("utf-8")("replace")


def _accepted(delta: Delta) -> Iterator[bool]:
    """Of each token whether it was a draft: a round commits accepted drafts first and then the target's own token."""
    for tokens, accepted in delta.rounds or ((len(delta.token_ids), delta.accepted),):
        for index in range(tokens):
            yield index < accepted
