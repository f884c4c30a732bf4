"""Gateways of one test process share the children that render the usual template: each takes 0.2 s of a processor."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from unittest import mock

from services.gateway.prompts import chat_renderer, tokenizer
from services.gateway.prompts.chat_renderer import ChatRenderer
from tests.support.fakes_tokenizer import TEMPLATE


class KeptRenderer(ChatRenderer):
    """Gateways that end leave its children to others; they end with the process."""

    def close(self) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Has a child wait. One that a gateway's thread starts ends with that thread."""
        self._idle.append(self._ready())


@cache
def _kept(source: str, tokens: tuple[tuple[str, str], ...]) -> KeptRenderer:
    return KeptRenderer(source, dict(tokens))


def _load(folder: Path) -> ChatRenderer | None:
    found = chat_renderer.load_chat_renderer(folder)
    if found is None or found.source != TEMPLATE:
        return found
    kept = _kept(TEMPLATE, tuple(chat_renderer.load_special_tokens(folder).items()))
    kept.begin()
    return kept


@contextmanager
def kept_templates() -> Iterator[None]:
    """Gateways that start meanwhile share children where their template is the usual one."""
    with mock.patch.object(tokenizer, "load_chat_renderer", _load):
        yield
