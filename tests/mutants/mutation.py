"""A seeded bug: one piece of a module's source text is replaced while the module is imported."""

import ast
import importlib.abc
import importlib.machinery
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType


@dataclass(frozen=True, slots=True)
class Mutant:
    """Replaces `old`, which must occur exactly once in `module`, by `new`; `killed_by` is the test that must fail."""

    name: str
    module: str
    old: str
    new: str
    killed_by: str

    def applied(self, source: str) -> str:
        """The module's text with the bug."""
        return source.replace(self.old, self.new)


def interpreted(test: str) -> bool:
    """Whether a test is one of those of kernels on a device."""
    return test.startswith("tests/kernels/gpu/")


class NotApplicableError(Exception):
    """The text to replace is not there exactly once, or what comes in its place is no Python there."""


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compiles the mutated source, and shows it to TorchScript; cached bytecode is neither read nor written."""
        path = self.get_filename(fullname)
        source = self._mutant.applied(self.get_data(path).decode())
        linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
        return compile(source, path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Finds the mutated module; every other module is left to the usual finders."""
        if fullname != self._mutant.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(self._mutant, spec.origin)
        return spec


def check(mutant: Mutant, root: Path) -> None:
    """Raises NotApplicableError unless the text to replace is there exactly once, and the bug is Python."""
    path = root / mutant.module.replace(".", "/")
    source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    found = source.count(mutant.old)
    if found != 1:
        raise NotApplicableError(f"{mutant.name}: its text occurs {found} times in {mutant.module}")
    try:
        ast.parse(mutant.applied(source))
    except SyntaxError as wrong:
        raise NotApplicableError(f"{mutant.name}: with it {mutant.module} is no Python: {wrong}") from None


def install(mutant: Mutant) -> None:
    """Makes later imports of the module see the bug; raises AssertionError when it is imported already."""
    assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _Finder(mutant))
