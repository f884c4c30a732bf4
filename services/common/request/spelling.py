"""How a tokenizer's tokens spell bytes: by a table of characters, or as text beside tokens for single bytes."""

import re
from collections.abc import Callable, Mapping
from typing import Any

_BLANK = "\u2581"
"""Stands for a blank in tokens that are text."""
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_FALLBACK = [
    {"type": "Replace", "pattern": {"String": _BLANK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
"""What decodes such tokens, and drops no blank where a text begins."""


def decoder_refusal(decoder: Any) -> str:
    """Why a tokenizer with this decoder, as tokenizer.json has it, is not served; empty when it is."""
    if speller(decoder) is not None:
        return ""
    kind = decoder.get("type") if isinstance(decoder, Mapping) else None
    return f"decoder {kind} is not supported, ByteLevel is, and a Sequence of Replace, ByteFallback and Fuse"


def speller(decoder: Any) -> Callable[[str], bytes] | None:
    """Return what gives the bytes of a token; None where tokens have no bytes of their own."""
    if not isinstance(decoder, Mapping):
        return None
    if decoder.get("type") == "ByteLevel":
        alphabet = byte_alphabet()
        return lambda token: _by_alphabet(token, alphabet)
    falls_back = decoder.get("type") == "Sequence" and decoder.get("decoders") == _FALLBACK
    return _by_fallback if falls_back else None


def byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level tokenizers spell bytes (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = sorted({*range(256)} - {*printable})
    shifted = {chr(256 + index): byte for index, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


def _by_alphabet(token: str, alphabet: Mapping[str, int]) -> bytes:
    """Bytes of a token; one with a character outside the alphabet was added as plain text."""
    try:
        return bytes([alphabet[character] for character in token])
    except KeyError:
        return token.encode()


def _by_fallback(token: str) -> bytes:
    """Bytes of a token that is text, or stands for one byte."""
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(_BLANK, " ").encode()
