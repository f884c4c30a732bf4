"""Whether a checkpoint's tokenizer and chat template can be used, and belong to its model; imports no torch."""

import json
import re
from pathlib import Path

from services.common.preflight.kind import TOKENIZER
from services.common.preflight.problem import Problem
from services.common.preflight.source import Source
from services.common.request.spelling import decoder_refusal

CONFIG, TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
FILES = (TOKENIZER, CONFIG, TEMPLATE)
_SPECIAL = re.compile(r"<[|｜][^|｜<>{}\s'\"+]{1,60}[|｜]>|<(?:start|end)_of_[a-z_]+>")
"""How templates write what should be one token."""
_SHOWN = 3


def tokenizer_problem(source: Source, vocab: int) -> Problem | None:
    """What is wrong with tokenizer.json for a model of so many tokens."""
    place = source.place(TOKENIZER)
    if TOKENIZER not in source.files:
        others = [name for name in ("tokenizer.model", "spiece.model", "vocab.json") if name in source.files]
        of = "".join(f"; transformers makes it of {name}: AutoTokenizer, then save_pretrained" for name in others[:1])
        return Problem(place, "no such file", f"copy it from the model's checkpoint{of}")
    path = source.folder(*FILES) / TOKENIZER
    try:
        form = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(form, dict):
            return Problem(place, "is not a JSON object", "fetch it again")
        refused = decoder_refusal(form.get("decoder")) or _unloadable(path)
        largest = max((form["model"]["vocab"] or {"": -1}).values())
    except (OSError, ValueError, RecursionError) as error:
        return Problem(place, f"cannot be read: {error}", "fetch it again")
    except (KeyError, TypeError, AttributeError):
        return Problem(place, refused or "has no model with a vocabulary", "fetch it again")
    if refused:
        return Problem(place, refused)
    if largest < 0:
        return Problem(place, "has no model with a vocabulary", "fetch it again")
    if largest >= vocab:
        return Problem(
            place,
            f"has token {largest}, and config.json's vocab_size is {vocab}: they are of different models",
            "copy tokenizer.json from this model's checkpoint",
        )
    return None


def _unloadable(path: Path) -> str:
    """Why the library cannot read it; empty when it can."""
    from tokenizers import Tokenizer

    try:
        Tokenizer.from_file(str(path))
    except Exception as error:
        return f"cannot be read: {error}"
    return ""


def template_problem(source: Source) -> Problem | None:
    """What people should know of the chat template: that there is none, or that the tokenizer lacks its tokens."""
    try:
        found = _template(source)
    except UnicodeDecodeError as error:
        return Problem(source.place(TEMPLATE if TEMPLATE in source.files else CONFIG), f"is not UTF-8 text: {error}")
    except (OSError, ValueError, RecursionError) as error:
        return Problem(source.place(CONFIG), f"cannot be read: {error}", "fetch it again")
    except (KeyError, TypeError, AttributeError):
        return Problem(source.place(CONFIG), "its chat_template is none that is known", "fetch it again")
    if found is None or not found[1].strip():
        place = source.place(CONFIG) if CONFIG in source.files else source.name
        return Problem(
            place,
            "no chat template: completions work, chats are refused",
            f"for chats put the model's {TEMPLATE} into its folder",
            fatal=False,
        )
    return _template_at_fault(source, *found)


def _template_at_fault(source: Source, file: str, text: str) -> Problem | None:
    """What is wrong with a template beside the tokenizer of its checkpoint."""
    try:
        known = _tokens(source.folder(*FILES) / TOKENIZER)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Problem(source.place(TOKENIZER), f"its tokens cannot be read: {error!r}", "fetch it again")
    if refused := _syntax(text):
        return Problem(source.place(file), f"the chat template does not compile: {refused}", "fetch it again")
    missing = [token for token in dict.fromkeys(_SPECIAL.findall(text)) if token not in known]
    if not missing:
        return None
    more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return Problem(
        source.place(file),
        f"the chat template writes {', '.join(missing[:_SHOWN])}{more}, which {TOKENIZER} has not as tokens: "
        "chats would be nonsense if it is another model's",
        f"take both files from one checkpoint, or put the right {TEMPLATE} beside",
        fatal=False,
    )


def has_template(source: Source) -> bool:
    """Whether chats can be asked for; a file that cannot be read has none."""
    try:
        return _template(source) is not None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _template(source: Source) -> tuple[str, str] | None:
    """The file that holds the default template, and the template."""
    folder = source.folder(*FILES)
    if TEMPLATE in source.files:
        return TEMPLATE, (folder / TEMPLATE).read_text(encoding="utf-8")
    if CONFIG not in source.files:
        return None
    told = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if not isinstance(told, dict):
        raise ValueError("it is not a JSON object")
    entry = told.get("chat_template")
    if isinstance(entry, list):
        entry = next((named["template"] for named in entry if named.get("name") == "default"), None)
    return (CONFIG, entry) if isinstance(entry, str) and entry else None


def _tokens(path: Path) -> set[str]:
    form = json.loads(path.read_text(encoding="utf-8"))
    return {str(one["content"]) for one in form.get("added_tokens") or ()} | set(form["model"]["vocab"])


def _syntax(text: str) -> str:
    """Why jinja cannot compile a template; empty when it can. Only templates' own statements may be unknown to us."""
    import jinja2

    language = jinja2.Environment(extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do"])
    others = jinja2.nodes.Include, jinja2.nodes.Import, jinja2.nodes.FromImport, jinja2.nodes.Extends
    try:
        language.compile(text)
        for found in language.parse(text).find_all(others):
            return f"line {found.lineno}: it takes another file, and only one is read"
    except jinja2.TemplateSyntaxError as error:
        return "" if "unknown tag" in str(error) else f"line {error.lineno}: {error.message}"
    return ""
