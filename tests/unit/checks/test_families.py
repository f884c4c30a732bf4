"""Families of models are named in their own files alone; prose may name them anywhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FAMILIES = ROOT / "services/common/model/families"
GGUF = ROOT / "services/common/gguf"
"""Another layout has names of its own for families and their splittings of text, and translates them."""
DRAFTERS = ROOT / "services/common/model/drafters"
"""A kind of drafter is a folder there, which names the architectures of its checkpoints."""
FORMS = ROOT / "services/gateway/parsing/forms"
"""A form of calls is a file there, called after those who write it."""
FAMILY = re.compile(r"qwen|(?<!ex)llama", re.IGNORECASE)
"""ExLlama is a set of kernels, which configurations of packed weights mention."""
STRETCHED_FREQUENCIES = re.compile(r"_?llama3", re.IGNORECASE)
"""A kind of rotary embedding that any family may have is called so in config.json."""


def words(source: str) -> Iterator[str]:
    """Names and texts of a module, docstrings left out."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.value
        for field in ("id", "attr", "arg", "name", "asname", "module"):
            if isinstance(value := getattr(node, field, None), str):
                yield value


def families_named(source: str) -> list[str]:
    return [word for word in words(source) if FAMILY.search(word) and not STRETCHED_FREQUENCIES.fullmatch(word)]


def test_no_code_outside_their_files_names_a_family() -> None:
    files = [path for folder in ("services", "deploy") for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    own = {FAMILIES, GGUF, FORMS, *(path for path in DRAFTERS.iterdir() if path.is_dir())}
    named = {
        str(path.relative_to(ROOT)): families
        for path in files
        if not own & set(path.parents) and (families := families_named(path.read_text(encoding="utf-8")))
    }
    assert not named


@pytest.mark.parametrize(
    "source",
    [
        "class Qwen3: ...",
        "from models import llama",
        "kind = config == 'LlamaForCausalLM'",
        "model.qwen2(x)",
        "f(qwen=1)",
    ],
)
def test_a_name_in_code_is_found(source: str) -> None:
    assert families_named(source)


def test_prose_and_the_kind_of_frequencies_may_say_so() -> None:
    assert not families_named('"""As Qwen3 publishes it."""\n\nKINDS = {"llama3": Llama3}\n')
