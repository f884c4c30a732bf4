"""A call as tags: <function=name><parameter=key>value</parameter></function>.

Nothing is escaped in a value, so a tag in it ends it only where the rest of the call agrees: a closing tag that is
followed by neither the next parameter nor the end of the function is text, and so is all that looks like the end of
the call when a later end follows before the next call begins.
"""

import json
import re

from services.gateway.parsing.form import Schemas, offered
from services.gateway.parsing.json_value import BrokenError
from services.gateway.parsing.object_arguments import ObjectArguments
from services.gateway.parsing.output import CallEnd, CallPiece, CallStart, Ending, Part
from services.gateway.parsing.schema import Arguments
from services.gateway.parsing.xml_tags import (
    BEGUN,
    BLOCK,
    END_BLOCK,
    END_FUNCTION,
    END_PARAMETER,
    FUNCTION,
    MOST_BLANK,
    PARAMETER,
    Tag,
    first_tag,
    may_be_tag,
    may_come,
    tag_at,
)
from services.gateway.parsing.xml_value import WAITS, Value, before_line_end

_BLANK = re.compile(r"\s*")
_CLOSED = {f"<{kind}>": Tag(kind, "", len(kind) + 2) for kind in (END_PARAMETER, END_FUNCTION)}


class XmlCall:
    """Reads one function; text values are passed on as they come, others when they are whole."""

    def __init__(self, schemas: Schemas, loose: bool) -> None:
        """A `loose` call must name one of the functions."""
        self.done = False
        self.rest = ""
        self._schemas = schemas
        self._loose = loose
        self._arguments = Arguments(None)
        self._name = ""
        self._whole = False
        self._kept = ""
        self._given: set[str] = set()
        self._value: Value | None = None
        self._depth = 0
        self._end: _End | None = None
        self._awaited = 0  # where a closing tag ends that the tag behind it tells of
        self._first = -1  # where the first tag of what is kept may begin, if that is known
        self._begun = -1  # where what is kept has a tag of a value that has not ended yet
        self._known: tuple[int, Tag] | None = None  # a whole tag of what is kept, and where it begins
        self._object: ObjectArguments | None = None

    @property
    def open(self) -> bool:
        """The call cannot end here."""
        return not (self.done or (self._end is not None and self._end.certain))

    def push(self, text: str, parts: list[Part]) -> None:
        """Appends the parts that became certain.

        Raises:
            BrokenError: it is no call.
        """
        if self._object is not None:
            self._in_object(self._object, text, parts)
            return
        kept = self._kept = self._kept + text
        if self._value is not None and kept[self._awaited :] in BEGUN:
            return  # a tag that comes letter by letter needs no other look
        if (self._awaited or self._begun >= 0) and self._waits(kept):
            return
        if self._value is not None and self._end is None and self._known is None:
            self._kept, self._first = self._value.passed(self._kept, self._depth > 0, parts)
            if self._first == WAITS:
                return
            if (tag := _CLOSED.get(self._kept)) is not None:
                self._awaited, self._known = tag.end, (0, tag)
                return
        while not self.done and self._step(parts):
            pass

    def _waits(self, kept: str) -> bool:
        """Whether more text must tell of a tag that has not ended, or of what stands behind a closing one."""
        if self._awaited:
            if may_come(kept, self._awaited):
                return True
            self._awaited, self._known = 0, None if self._end is None else self._known
        if self._begun >= 0:
            if may_be_tag(kept[self._begun :]):
                return True
            self._begun = -1
        return False

    def finish(self, ending: Ending, parts: list[Part]) -> None:
        """The best end that was seen counts; where the model did not end the text it must be beyond doubt.

        Raises:
            BrokenError: there was none.
        """
        if self._object is not None:
            self._object.finish(ending, parts)
            return
        if self._end is None:
            raise BrokenError
        rest = "".join(self._end.after) + self._kept
        following = rest.lstrip()
        if self._end.bare and following:
            raise BrokenError
        block = tag_at(following)
        closed = block is not None and block.kind == END_BLOCK
        if block is not None and closed and not self._end.certain and not _calls_or_ends(following[block.end :]):
            raise BrokenError  # a value that quotes the end of a call
        if ending is not Ending.ITSELF:
            stopped = not following and (ending is Ending.STOPPED or self._loose)
            if not self._end.certain or not (closed or stopped):
                raise BrokenError
        self._close(parts, rest)

    def _step(self, parts: list[Part]) -> bool:
        """Takes one piece; False when more text is needed."""
        if not self._name:
            return self._head()
        if self._value is None:
            return self._between(parts)
        return self._in_value(self._value, parts)

    def _head(self) -> bool:
        found = tag_at(self._kept)
        if found is None:
            _wait_for_tag(self._kept)
            return False
        self._name = offered(found.name, self._schemas)
        if not self._name or found.kind != FUNCTION or (self._loose and self._name not in self._schemas):
            raise BrokenError
        self._arguments = Arguments(self._schemas.get(self._name))
        self._kept, self._whole = self._kept[found.end :], found.whole
        return True

    def _between(self, parts: list[Part]) -> bool:
        """Behind the function's tag, before the first parameter."""
        if self._whole:
            parts.append(CallStart(self._name))
            self._close(parts, self._kept)
            return False
        self._kept = self._kept.lstrip()
        if self._kept.startswith("{"):
            self._object = ObjectArguments(self._name, [END_FUNCTION] if self._loose else [END_FUNCTION, END_BLOCK])
            text, self._kept = self._kept, ""
            self._in_object(self._object, text, parts)
            return False
        found = tag_at(self._kept)
        if found is None:
            _wait_for_tag(self._kept)
            return False
        if found.kind == PARAMETER:
            parts.append(CallStart(self._name))
            self._begin(found.name, parts)
            self._kept = self._kept[found.end :]
            return True
        if found.kind != END_FUNCTION and (found.kind != END_BLOCK or self._loose):
            raise BrokenError
        parts.append(CallStart(self._name))
        self._close(parts, self._kept[found.end if found.kind == END_FUNCTION else 0 :])
        return False

    def _in_object(self, inner: ObjectArguments, text: str, parts: list[Part]) -> None:
        inner.push(text, parts)
        if inner.done:
            found = tag_at(inner.rest)
            end = found.end if found is not None and found.kind == END_FUNCTION else 0
            self.done, self.rest = True, inner.rest[end:]

    def _in_value(self, value: Value, parts: list[Part]) -> bool:
        if self._known is not None:
            (start, found), self._known = self._known, None
            return self._tag(value, start, found, parts)
        start, self._first = self._first, -1
        if start < 0:
            start, _ = first_tag(self._kept)
        if start != 0:
            certain = before_line_end(self._kept, start if start >= 0 else len(self._kept))
            if certain:
                self._text(value, self._kept[:certain], parts)
                self._kept = self._kept[certain:]
                return True
            if start < 0:
                return False
        return self._tag(value, start, tag_at(self._kept, start), parts)

    def _tag(self, value: Value, start: int, found: Tag | None, parts: list[Part]) -> bool:
        """What begins at `start`, before which a line end may stand: a whole tag, if one is found there."""
        kept = self._kept
        if found is None:
            return self._no_tag(value, start, parts)
        if self._end is not None and self._end.before(found.kind, kept[:start]):
            self._close(parts, "".join(self._end.after) + kept)
            return False
        if found.kind in (END_PARAMETER, END_FUNCTION):
            return self._closing(value, start, found, parts)
        if found.kind in (BLOCK, END_BLOCK):
            self._block_tag(value, start, found, parts)
        elif found.kind == PARAMETER and self._may_begin(found.name, start):
            self._kept = kept[found.end :]
            self._next(value, found.name, parts)
        else:
            self._depth += found.kind == FUNCTION and not found.whole
            self._literal(value, found.end, parts)
        return True

    def _block_tag(self, value: Value, start: int, tag: Tag, parts: list[Part]) -> None:
        """A block begins or ends in the value; on a line of its own the end may be that of the call."""
        end = tag.end
        if tag.kind == END_BLOCK and start and self._end is None and not (self._depth or self._loose):
            self._end = _End(self._kept[:end], bare=True)
            self._kept = self._kept[end:]
        else:
            self._literal(value, end, parts)

    def _no_tag(self, value: Value, start: int, parts: list[Part]) -> bool:
        if may_be_tag(self._kept[start:]):
            self._begun = start
            return False
        self._literal(value, start + 1, parts)
        return True

    def _closing(self, value: Value, start: int, tag: Tag, parts: list[Part]) -> bool:
        """A closing tag, judged by what follows it."""
        end = tag.end
        behind = _behind(self._kept, end)
        if behind is None:
            self._awaited, self._known = end, (start, tag)
            return False
        at, following, found = behind
        closes = tag.kind == END_PARAMETER
        if closes and found is not None and found.kind == PARAMETER and self._may_follow(found.name):
            self._kept = following[found.end :]
            self._next(value, found.name, parts)
            return True
        certain, whole = False, not closes
        if closes and found is not None and found.kind == END_FUNCTION:
            certain, whole, end = not self._depth, True, at + found.end
        ends = certain or (closes and whole) or (found is not None and found.kind == END_BLOCK)
        self._depth = max(self._depth - whole, 0)
        self._known = _at_once(found, at - end)
        self._may_end(value, end, certain, ends, parts)
        return True

    def _may_follow(self, name: str) -> bool:
        return not self._depth and name not in self._given

    def _may_end(self, value: Value, end: int, certain: bool, ends: bool, parts: list[Part]) -> None:
        """The call may have ended at `end`, unless a better end has been seen."""
        if ends and (certain or self._end is None or self._end.bare):
            self._flush(value, parts)
            self._end = _End(self._kept[:end], certain)
            self._kept = self._kept[end:]
        else:
            self._literal(value, end, parts)

    def _may_begin(self, name: str, start: int) -> bool:
        """A parameter whose forerunner was not closed: at the beginning of a line, and of a name that is expected."""
        expected = self._arguments.expects(name) and name not in self._given
        return start > 0 and not self._depth and self._end is None and expected

    def _next(self, value: Value, name: str, parts: list[Part]) -> None:
        self._flush(value, parts)
        value.close(parts)
        self._begin(name, parts)

    def _begin(self, key: str, parts: list[Part]) -> None:
        if not key:
            raise BrokenError
        parts.append(CallPiece(("{" if not self._given else ", ") + json.dumps(key, ensure_ascii=False) + ": "))
        self._given.add(key)
        self._value = Value(self._arguments.kinds(key))

    def _literal(self, value: Value, end: int, parts: list[Part]) -> None:
        """Text of the value, tags in it included."""
        self._text(value, self._kept[:end], parts)
        self._kept = self._kept[end:]

    def _text(self, value: Value, text: str, parts: list[Part]) -> None:
        if self._end is not None:
            self._end.after.append(text)
        else:
            value.add(text, parts)

    def _flush(self, value: Value, parts: list[Part]) -> None:
        """The end that was seen was none, so it is text of the value."""
        if self._end is not None:
            value.add(self._end.text + "".join(self._end.after), parts)
            self._end = None

    def _close(self, parts: list[Part], rest: str) -> None:
        if self._value is not None:
            self._value.close(parts)
        parts += [CallPiece("}" if self._given else "{}"), CallEnd()]
        self.done, self.rest = True, rest


class _End:
    """A place where the call may have ended, and what followed it."""

    def __init__(self, text: str, certain: bool = False, bare: bool = False) -> None:
        """A `bare` one closes the block alone, so it counts only where nothing follows."""
        self.certain = certain
        self.bare = bare
        self.text = text
        self.after: list[str] = []

    def before(self, tag: str, blank: str) -> bool:
        """Whether a tag behind it begins another call, so that this was the end; `blank` stands before the tag."""
        if self.certain or len(self.after) > MOST_BLANK:
            return self.certain and tag in (FUNCTION, BLOCK)
        return self.bare and tag == FUNCTION and ("".join(self.after) + blank).strip() == f"<{BLOCK}>"


def _behind(text: str, end: int) -> tuple[int, str, Tag | None] | None:
    """What follows a tag that ends there, behind blanks: its place, all of it, and the whole tag that it begins with.

    None while more text must tell.
    """
    if end == len(text):
        return None
    at = end if text[end] == "<" else _BLANK.match(text, end, end + MOST_BLANK).end()  # type: ignore[union-attr]
    following = text[at:]
    if at == end + MOST_BLANK or (following and following[0] != "<"):
        return at, following, None
    found = tag_at(following)
    if found is None and may_be_tag(following):
        return None
    return at, following, found


def _calls_or_ends(text: str) -> bool:
    """Whether nothing but blanks, the end of a block once more, or another call stands there."""
    text = text.lstrip()
    while (found := tag_at(text)) is not None and found.kind == END_BLOCK:
        text = text[found.end :].lstrip()
    return not text or (found is not None and found.kind in (BLOCK, FUNCTION))


def _wait_for_tag(text: str) -> None:
    if not may_be_tag(text):
        raise BrokenError


def _at_once(found: Tag | None, blanks: int) -> tuple[int, Tag] | None:
    """A whole tag that stands behind another one, where no blanks are between them."""
    return (0, found) if found is not None and not blanks else None
