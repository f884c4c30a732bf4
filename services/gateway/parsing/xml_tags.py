"""The tags of a call, also as models miswrite them.

A name may stand behind `=`, or as an attribute: <function=f>, <function name="f">; other attributes tell nothing. A
closing tag may repeat a name, which tells nothing either: </parameter=key>, </parameter name="key">. There may be
blanks behind the word and around `=`, and in a closing tag anywhere outside its word.
"""

import re
from typing import NamedTuple

FUNCTION, PARAMETER, BLOCK = "function", "parameter", "tool_call"
END_FUNCTION, END_PARAMETER, END_BLOCK = "/function", "/parameter", "/tool_call"
MOST_TAG = 300
"""Characters of a tag that is not whole yet."""

_OPENING = re.compile(
    r"<(function|parameter)\s*(?:=([^<>\n]{1,256})|(?<=\s)name\s*=\s*(\"[^\"<>\n]{1,256}\"|'[^'<>\n]{1,256}'|[^\s\"'<>]{1,256})"
    r"(?:\s[^<>]{0,256})?)>"
)
_CLOSING = re.compile(r"<\s{0,8}/\s{0,8}(function|parameter|tool_call)(?:\s{0,8}|[\s=][^<>\n]{0,256})>")
_BLOCK = "<tool_call>"
_BEGINNINGS = ("<function=", "<functionname=", "<parameter=", "<parametername=")
_ENDINGS = ("</function", "</parameter", "</tool_call")
_BLANKS = re.compile(r"\s")


def _as_far_as_it_came(word: str, behind: str) -> str:
    """Matches a word with what stands behind it; a text may end anywhere in them."""
    pattern = rf"(?:{behind}|\Z)"
    for letter in reversed(word):
        pattern = rf"(?:{letter}{pattern}|\Z)"
    return pattern


_OPENINGS = [_as_far_as_it_came(word, r"[\s=]") for word in (FUNCTION, PARAMETER)]
_OPENINGS.append(_as_far_as_it_came(BLOCK, ">"))
_CLOSINGS = [_as_far_as_it_came(word, r"[\s=>]") for word in (FUNCTION, PARAMETER, BLOCK)]
_FIRST = re.compile(rf"<(?:{'|'.join(_OPENINGS)}|\s{{0,8}}(?:\Z|/\s{{0,8}}(?:{'|'.join(_CLOSINGS)})))")


class Tag(NamedTuple):
    """What a tag is, by the words of this module; the name that it gives, without quotes; and where it ends."""

    kind: str
    name: str
    end: int


def tag_at(text: str, at: int = 0) -> Tag | None:
    """The whole tag that begins there."""
    found = _OPENING.match(text, at) or _CLOSING.match(text, at)
    if found is None or found.end() - at > MOST_TAG:
        return Tag(BLOCK, "", at + len(_BLOCK)) if text.startswith(_BLOCK, at) else None
    if found.re is _CLOSING:
        return Tag("/" + found[1], "", found.end())
    return Tag(found[1], (found[2] or found[3]).strip().strip("\"'").strip(), found.end())


def next_tag(text: str) -> int:
    """Where the first tag may begin; -1 where none can."""
    found = _FIRST.search(text)
    return found.start() if found else -1


def may_be_tag(text: str) -> bool:
    """Whether a text that begins with no whole tag may become one."""
    if len(text) >= MOST_TAG or ">" in text or "<" in text[1:]:
        return False
    dense = _BLANKS.sub("", text)
    marks = (*_BEGINNINGS, *_ENDINGS, _BLOCK)
    return any(mark.startswith(dense) for mark in marks) or dense.startswith((*_BEGINNINGS, *_ENDINGS))
