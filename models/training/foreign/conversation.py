"""A target's chat format: what stands around a user's message, and tokens of whole prompts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MESSAGE = "@@message@@"


@dataclass(frozen=True)
class ChatFormat:
    """A conversation's text is `head`, the user's message, `tail`, and then the answer."""

    tokenizer: PreTrainedTokenizerBase
    head: str
    tail: str

    def begin(self, messages: list[str]) -> list[list[int]]:
        """Return the tokens of messages that go on."""
        return self._encode([self.head + message for message in messages])

    def prompts(self, messages: list[str]) -> list[list[int]]:
        """Return the tokens of everything before the answers."""
        return self._encode([self.head + message + self.tail for message in messages])

    def messages(self, texts: list[list[int]]) -> list[str]:
        """Return what users say in texts that began with a head and ended with their message."""
        skipped = len(self._encode([self.head])[0])
        decoded: list[str] = self.tokenizer.batch_decode([text[skipped:] for text in texts], skip_special_tokens=True)
        return decoded

    @property
    def message_end(self) -> int:
        """The token after a user's message."""
        return self._encode([self.tail])[0][0]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
        return ids


def read_format(folder: Path) -> ChatFormat:
    """Read the tokenizer and its chat template.

    Raises:
        ValueError: there is no chat template, or it does not show a user's message as it is.
    """
    # Imported where it is needed: transformers takes a second.
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.chat_template:
        raise ValueError(f"{folder}: the tokenizer has no chat template, so the target cannot write answers")
    shown = tokenizer.apply_chat_template(
        [{"role": "user", "content": _MESSAGE}], tokenize=False, add_generation_prompt=True
    )
    head, found, tail = str(shown).partition(_MESSAGE)
    if not found or not tail:
        raise ValueError(f"{folder}: the chat template does not show a user's message")
    return ChatFormat(tokenizer, head, tail)
