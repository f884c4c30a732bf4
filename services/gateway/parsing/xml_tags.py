"""The tags of a call, also as models miswrite them.

A name may stand behind `=`, or as an attribute: <function=f>, <function name="f">; other attributes tell nothing. A
closing tag may repeat a name, which tells nothing either: </parameter=key>, </parameter name="key">. There may be
blanks behind the word and around `=`, and in a closing tag anywhere outside its word. A tag may close itself.
"""

import re
from typing import NamedTuple

FUNCTION, PARAMETER, BLOCK = "function", "parameter", "tool_call"
END_FUNCTION, END_PARAMETER, END_BLOCK = "/function", "/parameter", "/tool_call"
MOST_TAG = 300
"""Characters of a tag that is not whole yet."""

MOST_BLANK = 256
"""Characters of blanks between two tags."""

_OPENING = re.compile(
    r"<(function|parameter)\s*(?:=([^<>\n]{1,256})|(?<=\s)name\s*=\s*(\"[^\"<>\n]{1,256}\"|'[^'<>\n]{1,256}'|[^\s\"'<>]{1,256})"
    r"(?:\s[^<>]{0,256})?/?)>"
)
_CLOSING = re.compile(r"<\s{0,8}/\s{0,8}(function|parameter|tool_call)(?:\s{0,8}|[\s=][^<>\n]{0,256})>")
_BLOCK = "<tool_call>"
_PLAIN = {f"<{kind}>": kind for kind in (BLOCK, END_FUNCTION, END_PARAMETER, END_BLOCK)}
_OPENS = ("<f", "<p")

BEGUN = frozenset(
    mark[:size]
    for mark in ("<function=", "<parameter=", _BLOCK[:-1], "</function", "</parameter", "</tool_call")
    for size in range(len(mark) + 1)
)
"""Beginnings of tags without blanks."""


def _as_far_as_it_came(word: str, behind: str) -> str:
    """Matches a word with what stands behind it; a text may end anywhere in them."""
    pattern = rf"(?:{behind}|\Z)"
    for letter in reversed(word):
        pattern = rf"(?:{letter}{pattern}|\Z)"
    return pattern


_OPENINGS = [_as_far_as_it_came(word, r"[\s=]") for word in (FUNCTION, PARAMETER)]
_OPENINGS.append(_as_far_as_it_came(BLOCK, ">"))
_CLOSINGS = [_as_far_as_it_came(word, r"[\s=>]") for word in (FUNCTION, PARAMETER, BLOCK)]
_ANY = rf"<(?:{'|'.join(_OPENINGS)}|\s{{0,8}}(?:\Z|/\s{{0,8}}(?:{'|'.join(_CLOSINGS)})))"
_FIRST = re.compile(_ANY)
_CLOSING_TEXT = (
    r"</parameter>\s{0,8}(?:[^\s<]|</parameter>)",
    r"</function>\s{0,8}(?:[^\s<]|</(?:parameter|function)>)",
    r"(?<![\r\n])</tool_call>",
)
_FIRST_OF_CALL = re.compile(rf"(?!{'|'.join(_CLOSING_TEXT)}){_ANY}")
_COMING = re.compile(rf"\s{{0,{MOST_BLANK - 1}}}(?:\Z|{_ANY})")


class Tag(NamedTuple):
    """What a tag is, by the words of this module; the name that it gives, without quotes; and where it ends.

    Of what is `whole` it is the end too: <function=f/>.
    """

    kind: str
    name: str
    end: int
    whole: bool = False


def tag_at(text: str, at: int = 0) -> Tag | None:
    """The whole tag that begins there."""
    end = text.find(">", at, at + MOST_TAG) + 1
    if not end:
        return None
    if kind := _PLAIN.get(text[at:end]):
        return Tag(kind, "", end)
    found = (_OPENING if text.startswith(_OPENS, at) else _CLOSING).match(text, at)
    if found is None or found.end() - at > MOST_TAG:
        return None
    if found.re is _CLOSING:
        return Tag("/" + found[1], "", found.end())
    name = (found[2] or found[3]).strip().removesuffix("/").strip().strip("\"'").strip()
    return Tag(found[1], name, found.end(), text.endswith("/>", at, found.end()))


def first_tag(text: str, within: bool = True) -> tuple[int, bool]:
    """Where the first tag may begin, and whether the text ends within its word; -1 and True where none can.

    Not `within` a function that a value writes about, closing tags are passed by where what stands around them tells
    that they are text.
    """
    found = (_FIRST if within else _FIRST_OF_CALL).search(text)
    if found is None:
        return -1, True
    return found.start(), found.end() == len(text) and text[-1] != ">"


def may_come(text: str, at: int) -> bool:
    """Whether nothing stands there yet but blanks, and the beginning of a tag's word."""
    if len(text) == at:
        return True
    if text[-1] == ">":
        return False
    rest = text[at:].lstrip()
    if rest in BEGUN and len(text) - at - len(rest) < MOST_BLANK:
        return True  # most are written so, and a look is quicker
    found = _COMING.match(text, at)
    return found is not None and found.end() == len(text)


def may_be_tag(text: str) -> bool:
    """Whether a text that begins with no whole tag may become one."""
    if text in BEGUN:
        return True
    if len(text) >= MOST_TAG or ">" in text or text.rfind("<") > 0:
        return False
    return _FIRST.match(text) is not None
