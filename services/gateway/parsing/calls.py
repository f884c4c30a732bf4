"""Takes calls of tools out of a text as they are written; text that is no call stays content."""

import re
from collections.abc import Callable, Sequence

from services.gateway.parsing.form import Body, Form, Schemas
from services.gateway.parsing.json_value import BrokenError
from services.gateway.parsing.output import CallCut, CallStart, Closing, Content, Ending, Gap, Part, held_of

MOST_READ = 4096
"""Characters that are read at a time: of what a tag stands before a copy is made."""
MOST_REREAD = 8
"""Calls of which only the end of all text tells where they ended."""

LIST = "["
"""Begins a list of calls that stands without tags."""

_BEFORE = re.compile(r"(?:[\s\[\ufeff\u200b\u2060]|```\w{0,16}(?=[\s\[{]))*")
_FENCE = re.compile(r"`{1,3}|```\w{1,16}")
"""May begin the fence of a block of code, in which models put calls within their tags."""
_LINE = re.compile(r"|`{1,3}|```\w{1,16}")
"""What may stand before JSON on its line, where that is a call: nothing, or what begins code."""
_MOST_LINE = 24
"""Characters of a line that are looked at: more than _LINE takes."""
_BEHIND = re.compile(r"[\s,;\]}`]*")


class CallSplitter:
    """Looks for calls in some forms; blanks around calls belong to neither side."""

    def __init__(self, forms: Sequence[Form], schemas: Schemas) -> None:
        """Takes the forms that the model may write, and the schemas of the arguments by function."""
        self._schemas = schemas
        self._openings = {form.opening: [one for one in forms if one.opening == form.opening] for form in forms}
        self._loose = [form for form in forms if form.loose]
        if lists := [form for form in self._loose if any(head == "{" for head, _ in form.bodies)]:
            self._openings[LIST] = lists
        self._closings = [Closing(tag) for tag in {form.closing for form in forms} - {""}]
        tags, heads = {*self._openings} - {""}, {head for form in self._loose for head, _ in form.bodies}
        self._marks = sorted(tags | heads, key=len, reverse=True)
        self._mark = re.compile("|".join(map(re.escape, self._marks)))
        self._opening = re.compile("|".join(map(re.escape, tags - {LIST})) or r"(?!)")
        self._step: Callable[[list[Part]], bool] = self._outside
        self._kept = ""
        self._blank = Gap()
        self._line = ""
        self._block = ""
        self._head = ""
        self._body: Body | None = None
        self._raw: list[str] = []
        self._before = Gap()
        self._started = False
        self._called = False

    @property
    def marks(self) -> list[str]:
        """Tags with which a call begins, wherever they stand."""
        return [mark for mark in self._marks if len(mark) > 1]

    @property
    def open(self) -> bool:
        """A call has begun that has not ended."""
        return self._body is not None and self._body.open

    @property
    def undecided(self) -> bool:
        """Whether what came last may be the beginning of a call."""
        return self._body is not None or self._step is not self._outside or bool(self._kept)

    def push(self, text: str) -> list[Part]:
        """The parts that became certain."""
        if len(text) > MOST_READ:
            return [part for at in range(0, len(text), MOST_READ) for part in self.push(text[at : at + MOST_READ])]
        parts: list[Part] = []
        if (body := self._body) is None:
            self._kept += text
        elif text:
            self._read(body, text, parts)
            if self._body is body:
                return parts
        while self._body is None and self._step(parts):
            pass
        return parts

    def finish(self, ending: Ending) -> list[Part]:
        """A call whose end is missing is none: its text is content."""
        parts: list[Part] = []
        for _ in range(MOST_REREAD):
            if (body := self._body) is None:
                break
            self._finish_body(body, ending, parts)
            parts += self.push("")
        text = self._before.taken() + "".join(self._raw) + self._blank.taken() + self._kept
        if text and not (self._called and (_BEHIND.fullmatch(text) or self._is_left_over(text, ending))):
            parts.append(Content(text))
        self._body, self._raw = None, []
        self._kept = ""
        return parts

    def _is_left_over(self, text: str, ending: Ending) -> bool:
        """Whether a text behind a call is a tag without a call or half a tag, where the model itself ended there."""
        tag = text.strip()
        if ending is not Ending.ITSELF or len(tag) < len("</"):
            return False
        opens = any(mark.startswith(tag) for mark in self._openings if mark.startswith("<"))
        return opens or any(closing.may_come(tag) for closing in self._closings)

    def _outside(self, parts: list[Part]) -> bool:
        """Content, up to where a call may begin; False when more text is needed."""
        looked, line = 0, "" if self._blank.has_line else self._line
        for found in self._mark.finditer(self._kept):
            mark, at = found[0], found.start()
            looked, line = at, _line_of(line, self._kept[looked:at])
            if mark in ("{", LIST) and not _LINE.fullmatch(line):
                continue
            self._tell(parts, self._kept[:at])
            self._kept = self._kept[at:]
            if mark not in self._openings:
                return self._begin(self._loose, parts, loose=True)
            self._enter(mark)
            return True
        certain = len(self._kept) - held_of(self._kept, self._marks)
        self._tell(parts, self._kept[:certain])
        self._kept = self._kept[certain:]
        return False

    def _enter(self, opening: str) -> None:
        """Behind an opening tag."""
        self._before.add(self._blank.taken() + opening)
        self._kept = self._kept[len(opening) :]
        self._block, self._step = opening, self._in_block

    def _in_block(self, parts: list[Part]) -> bool:
        self._skip(_BEFORE)
        forms = self._openings[self._block]
        if not self._kept or _FENCE.fullmatch(self._kept):
            return False
        if self._kept.startswith(self._block):
            self._enter(self._block)
            return True
        if self._block.startswith(self._kept):
            return False
        if self._begin(forms, parts, loose=self._block == LIST):
            return True
        if any(head.startswith(self._kept) for form in forms for head, _ in form.bodies):
            return False
        self._leave(parts)
        return True

    def _behind(self, parts: list[Part]) -> bool:
        """Behind a call, where another one may stand or the closing tag."""
        self._skip(_BEHIND)
        self._end_list()
        if not self._kept:
            return False
        if self._end_block():
            return True
        tags = self._openings.keys() - {"", LIST}
        if tag := next((tag for tag in tags if self._kept.startswith(tag)), ""):
            self._before.taken()
            self._enter(tag)
            return True
        if any(tag.startswith(self._kept) for tag in tags):
            return False  # before a body is tried that may begin with anything
        inside = self._openings.get(self._block, []) if self._block else self._loose
        if self._begin(inside, parts, loose=self._block in ("", LIST)):
            return True
        if any(mark.startswith(self._kept) for mark in self._marks) or self._may_close():
            return False
        self._leave(parts)
        return True

    def _end_list(self) -> None:
        """Leaves a list of calls without tags whose bracket was among what was skipped."""
        if self._block == LIST and self._before.has("]"):
            blank = self._before.taken().rpartition("]")[2]
            self._before.add(blank)
            self._block = ""

    def _end_block(self) -> bool:
        """Takes a closing tag, if there is one."""
        end = max((closing.end(self._kept) for closing in self._closings), default=0)
        if end:
            self._before.taken()
            self._kept, self._block = self._kept[end:], ""
        return end > 0

    def _may_close(self) -> bool:
        return any(closing.may_come(self._kept) for closing in self._closings)

    def _skip(self, gap: re.Pattern[str]) -> None:
        end = gap.match(self._kept).end()  # type: ignore[union-attr]
        self._before.add(self._kept[:end])
        self._kept = self._kept[end:]

    def _leave(self, parts: list[Part]) -> None:
        """What came was no call, so it is content."""
        self._step, self._block = self._outside, ""
        self._tell(parts, self._before.taken())

    def _begin(self, forms: Sequence[Form], parts: list[Part], loose: bool) -> bool:
        """Begins the body of a call, if one begins here."""
        for form in forms:
            for head, body in form.bodies:
                if self._kept.startswith(head):
                    self._head, self._body = head, body(self._schemas, loose)
                    self._before.add(self._blank.taken())
                    self._raw, self._started = [], False
                    text, self._kept = self._kept, ""
                    self._read(self._body, text, parts)
                    return True
        return False

    def _read(self, body: Body, text: str, parts: list[Part]) -> None:
        self._raw.append(text)
        known = len(parts)
        try:
            body.push(text, parts)
        except BrokenError as error:
            self._started = self._started or any(isinstance(part, CallStart) for part in parts[known:])
            self._break(error.rest, parts)
        else:
            if not self._started:
                self._started = any(isinstance(part, CallStart) for part in parts[known:])
            if body.done:
                self._ended(body.rest)

    def _finish_body(self, body: Body, ending: Ending, parts: list[Part]) -> None:
        try:
            body.finish(ending, parts)
        except BrokenError:
            # Nothing in it is looked at again: a call in a value that was cut is none of the model's.
            self._body = None
            if self._started:
                parts.append(CallCut())
            parts.append(Content(self._before.taken() + "".join(self._raw)))
            self._raw = []
            self._step = self._nothing
        else:
            self._ended(body.rest)

    def _nothing(self, _: list[Part]) -> bool:
        return False

    def _ended(self, rest: str) -> None:
        """The call is whole."""
        self._body, self._raw = None, []
        self._before.taken()
        self._called, self._kept, self._step = True, rest, self._behind

    def _break(self, rest: str, parts: list[Part]) -> None:
        """What was read is content, but a call may begin in it."""
        raw = "".join(self._raw)
        end = len(raw) - len(rest)
        if self._started:
            parts.append(CallCut())
            again = self._opening.search(raw, len(self._head), end)
            end = again.start() if again else end
        else:
            end = len(self._head)
        self._body, self._raw, self._block = None, [], ""
        text = self._before.taken() + raw[:end]
        self._kept, self._step = raw[end:], self._outside
        self._tell(parts, text)

    def _tell(self, parts: list[Part], text: str) -> None:
        """Content; blanks wait for what follows, for those around calls are none."""
        certain = len(text.rstrip())
        if certain:
            content = self._blank.taken() + text[:certain]
            parts.append(Content(content))
            self._line = _line_of(self._line, content)
        self._blank.add(text[certain:])


def _line_of(line: str, text: str) -> str:
    """How the last line begins where more text has come."""
    _, broken, last = text.rpartition("\n")
    return (last if broken else line + last).strip()[:_MOST_LINE]
