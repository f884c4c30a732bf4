"""Prompts to token ids and back to bytes, by the checkpoint's own tokenizer.json."""

import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HuggingFaceTokenizer

from services.common.request.constraint import Thought
from services.common.request.errors import Code, PacelineError, Reason, invalid_field
from services.common.request.grammar import Grammars
from services.common.request.spelling import decoder_refusal, speller
from services.common.serving.files import read_regular
from services.gateway.prompts.chat_renderer import FIELD as CHAT_FIELD
from services.gateway.prompts.chat_renderer import ChatRenderer, load_chat_renderer, load_special_tokens
from services.gateway.prompts.text import TokenBytes, bytes_of
from services.gateway.prompts.thought import CLOSE, OPEN

log = logging.getLogger(__name__)
PROMPT_END = 8
"""Tokens at the end of a prompt that may open or close a thought."""
SHRINKING: dict[str | None, int] = {None: 1, "NFC": 3}
"""How much shorter a normaliser makes a text at most: NFC makes one Hangul syllable of three letters of its size."""


FIRST_CHARACTERS = 1 << 15
"""Texts up to here are tokenised at once; of longer ones such parts first."""

MOST_CHARACTERS = 200
"""Of what the library says when it gives up."""


class TokenizerError(ValueError):
    """A tokenizer folder that cannot be served; the message names the file."""


class PanicError(Exception):
    """The library gave up."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Panics of the library are no Exceptions, and would pass every `except Exception` on their way.

    Raises:
        PanicError: it gave up, for instance because a regular expression of tokenizer.json takes too many steps.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise PanicError(str(error)[:MOST_CHARACTERS]) from None


class Tokenizer:
    """The tokenizer of one model; safe to use from several threads."""

    def __init__(
        self, tokenizer: HuggingFaceTokenizer, chats: ChatRenderer | None, names: Mapping[str, str] | None = None
    ) -> None:
        """Takes a tokenizer whose tokens spell bytes, the model's chat template, and `names` of special tokens."""
        self.names = dict(names or {})
        self._tokenizer = tokenizer
        self._chats = chats
        self.token_bytes = _token_bytes(tokenizer)
        self._longest = longest_token(tokenizer)
        self.grammars = _grammars(tokenizer)
        self._showing: dict[frozenset[str] | None, TokenBytes] = {frozenset(): self.token_bytes}

    @property
    def template(self) -> str:
        """The source of the chat template; empty without."""
        return self._chats.source if self._chats else ""

    def showing(self, names: frozenset[str] | None) -> TokenBytes:
        """The bytes of all tokens, where special ones of these names have bytes too; all of them with None."""
        if names not in self._showing:
            added = self._tokenizer.get_added_tokens_decoder().items()
            shown = {
                token_id: token.content.encode() for token_id, token in added if names is None or token.content in names
            }
            self._showing[names] = tuple(shown.get(token, piece) for token, piece in enumerate(self.token_bytes))
        return self._showing[names]

    def special_ids(self, names: Sequence[str]) -> tuple[int, ...]:
        """The ids of special tokens among some texts; they are no part of any text."""
        found = (self._tokenizer.token_to_id(name) for name in names)
        return tuple(token for token in found if token is not None and not bytes_of(self.token_bytes, (token,)))

    def encode(self, text: str, context_limit: int | None = None, special: bool = True) -> list[int]:
        """Token ids of plain text, with the special tokens that the tokenizer itself adds unless `special` is false.

        Raises:
            PacelineError: INVALID_FIELD when the library gives up, CONTEXT_LIMIT when they cannot fit.
        """
        self._check_parts(text, context_limit)
        return self._encoded(text, special_tokens=special)

    def check_size(self, text_bytes: int, context_limit: int) -> None:
        """Refuses a text that cannot fit, before the work of tokenising it.

        Raises:
            PacelineError: CONTEXT_LIMIT when even the longest tokens would be too many.
        """
        if self._longest is not None and text_bytes > (context_limit - 1) * self._longest:
            text = (
                f"{text_bytes} bytes leave no room for output: the context limit is {context_limit} tokens, "
                f"of which none is longer than {self._longest} bytes"
            )
            raise PacelineError(Code.INVALID_ARGUMENT, Reason.CONTEXT_LIMIT, text, field="prompt")

    def encode_chat(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] = (),
        arguments: Mapping[str, Any] | None = None,
        context_limit: int | None = None,
    ) -> list[int]:
        """Token ids of a chat: messages and tools as templates read them, and what the template takes beside.

        Waits for the template's own process, so it must not be called on the event loop.

        Raises:
            PacelineError: UNSUPPORTED without a template, INVALID_FIELD when the template refuses or takes too long,
                CONTEXT_LIMIT when what it renders cannot fit.
        """
        if self._chats is None:
            text = "this model has no chat template"
            raise PacelineError(Code.INVALID_ARGUMENT, Reason.UNSUPPORTED, text, field=CHAT_FIELD)

        def check_size(size: int) -> None:
            if context_limit is not None:
                self.check_size(size, context_limit)

        rendered = self._chats.render(messages, tools, arguments, check_size)
        self._check_parts(rendered, context_limit)
        return self._encoded(rendered, special_tokens=False)

    def _check_parts(self, text: str, context_limit: int | None) -> None:
        """Refuses a long text whose first parts alone have twice the tokens that fit.

        Each token costs up to 300 bytes while a text is tokenised, and only those of one part are there at once. Where
        a text is cut changes the tokens there only, so twice as many are certainly too many.
        """
        if context_limit is None or len(text) <= FIRST_CHARACTERS:
            return
        found = 0
        for at in range(0, len(text), FIRST_CHARACTERS):
            found += len(self._encoded(text[at : at + FIRST_CHARACTERS], special_tokens=False))
            if found > 2 * context_limit:
                size = min(at + FIRST_CHARACTERS, len(text))
                said = f"the first {size} characters are {found} tokens: the context limit is {context_limit}"
                raise PacelineError(Code.INVALID_ARGUMENT, Reason.CONTEXT_LIMIT, said, field="prompt")

    def _encoded(self, text: str, special_tokens: bool) -> list[int]:
        """Encodes as a batch of one: for a batch the library releases Python's lock, for `encode` it does not."""
        try:
            with panics_as_errors():
                ids: list[int] = self._tokenizer.encode_batch_fast([text], add_special_tokens=special_tokens)[0].ids
        except PanicError as error:
            raise invalid_field("prompt", f"the model's tokenizer fails at this text: {error}") from None
        return ids

    def token(self, token_id: int) -> tuple[str, bytes]:
        """A token as text and as bytes; special ones by their names."""
        piece = bytes_of(self.token_bytes, (token_id,))
        if piece:
            return piece.decode(errors="replace"), piece
        name = self._tokenizer.id_to_token(token_id) or ""
        return name, name.encode()

    @property
    def thinks_in_parts(self) -> bool:
        """Whether the template knows thoughts and the vocabulary has no tokens for their tags."""
        tags = (self._tokenizer.token_to_id(OPEN), self._tokenizer.token_to_id(CLOSE))
        return CLOSE in self.template and None in tags

    def thought(self, prompt: Sequence[int]) -> Thought | None:
        """Where the thought of an answer lies that the prompt has begun, or that may begin; None where it has none."""
        opening, closing = self._tokenizer.token_to_id(OPEN), self._tokenizer.token_to_id(CLOSE)
        if opening is None or closing is None or CLOSE not in self.template:
            return None
        last = next((token for token in reversed(prompt[-PROMPT_END:]) if token in (opening, closing)), None)
        return None if last == closing else Thought(opening, closing, begun=last == opening)

    def close(self) -> None:
        """Ends the chat template's processes."""
        if self._chats is not None:
            self._chats.close()

    def decode(self, token_ids: list[int]) -> str:
        """The text of all tokens at once by the library, special tokens left out."""
        text: str = self._tokenizer.decode(token_ids, skip_special_tokens=True)
        return text


def load_tokenizer(folder: Path) -> Tokenizer:
    """Reads tokenizer.json and the chat template of a checkpoint folder.

    Raises:
        TokenizerError: a file is missing or broken, or the tokens have no bytes of their own.
    """
    path = folder / "tokenizer.json"
    # The calling thread does the work: in the library's few threads a short text would wait behind long ones.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        with panics_as_errors():
            tokenizer = HuggingFaceTokenizer.from_buffer(read_regular(path))
        chats, names = load_chat_renderer(folder), load_special_tokens(folder)
    except Exception as error:
        raise TokenizerError(f"{path}: cannot be read: {error}") from error
    if refusal := decoder_refusal(json.loads(tokenizer.to_str()).get("decoder")):
        raise TokenizerError(f"{path}: {refusal}")
    return Tokenizer(tokenizer, chats, names)


def _grammars(tokenizer: HuggingFaceTokenizer) -> Grammars | None:
    """What checks constraints. Ends of texts are the target's own, so any id serves for them here.

    It is made at the start: it takes a second for 150,000 tokens, in which Python runs nothing else.
    """
    try:
        return Grammars(tokenizer.to_str(), max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1, (0,))
    except ValueError as error:
        log.warning("outputs cannot be ruled by grammars", extra={"data": {"error": str(error)[:MOST_CHARACTERS]}})
        return None


def longest_token(tokenizer: HuggingFaceTokenizer) -> int | None:
    """Most bytes of text that one token stands for; None where nothing is known, as text is dropped on the way."""
    form = json.loads(tokenizer.to_str())
    normalizer = form.get("normalizer")
    kind = normalizer and normalizer.get("type")
    added = tokenizer.get_added_tokens_decoder().values()
    if kind not in SHRINKING or form.get("truncation") or any(token.lstrip or token.rstrip for token in added):
        return None
    if "Removed" in json.dumps(form.get("pre_tokenizer")):
        return None
    spell = speller(form.get("decoder")) or str.encode
    contents = [len(token.content.encode()) for token in added]
    learned = [len(spell(token)) for token in tokenizer.get_vocab(with_added_tokens=False)]
    return max([*contents, *learned], default=1) * SHRINKING[kind]


def _token_bytes(tokenizer: HuggingFaceTokenizer) -> TokenBytes:
    spell = speller(json.loads(tokenizer.to_str()).get("decoder")) or str.encode
    special = {token_id for token_id, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    vocabulary: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    pieces = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for token, token_id in vocabulary.items():
        if token_id not in special:
            pieces[token_id] = spell(token)
    return tuple(pieces)
