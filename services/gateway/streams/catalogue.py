"""The models of a gateway as it reads and writes them: each has a tokenizer, a chat template and forms of calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from services.common.request.errors import Code, PacelineError, Reason
from services.common.serving.hub import TOKENIZER_FILES, local_folder
from services.gateway.model_settings import ModelSettings
from services.gateway.parsing.form import Form, chosen
from services.gateway.prompts.tokenizer import Tokenizer, load_tokenizer

SHOWN = 64
"""Characters of a name that an error repeats."""


@dataclass(frozen=True, slots=True)
class Language:
    """What one model reads and writes; `folder` holds its tokenizer and its makers' recommendations."""

    settings: ModelSettings
    folder: Path
    tokenizer: Tokenizer
    forms: Sequence[Form]

    @property
    def name(self) -> str:
        """Its public name; empty for that of whatever the first target serves."""
        return self.settings.name


class Catalogue:
    """All models of a gateway by name."""

    def __init__(self, languages: Sequence[Language], default: str) -> None:
        """`default` is the model of requests that name none; without it they are for the only one."""
        self.languages = tuple(languages)
        self._by_name = {name: one for one in languages for name in (one.name, *one.settings.aliases)}
        self.several = len(languages) > 1
        """Whether a request has to name a model, or may mean one of several."""
        self._default = self._by_name.get(default) if self.several else languages[0]

    def find(self, name: str) -> Language:
        """The model of a request. Where there is only one it is that, whatever the name: its targets know theirs.

        Raises:
            PacelineError: UNKNOWN_MODEL.
        """
        found = self._by_name.get(name) if name and self.several else self._default
        if found is None:
            raise unknown_model(name, [one.name for one in self.languages])
        return found

    def close(self) -> None:
        """Ends the processes of the chat templates."""
        for tokenizer in {id(one.tokenizer): one.tokenizer for one in self.languages}.values():
            tokenizer.close()


def unknown_model(name: str, served: Sequence[str]) -> PacelineError:
    """The refusal of a name, which tells those that are served."""
    known = ", ".join(f"`{one}`" for one in served)
    missing = f"The model `{name[:SHOWN]}` does not exist" if name else "A request has to name its model"
    return PacelineError(Code.NOT_FOUND, Reason.UNKNOWN_MODEL, f"{missing}. Served: {known}.", field="model")


def load_catalogue(models: Sequence[ModelSettings], default: str) -> Catalogue:
    """Reads every model's folder, each of them once.

    Raises:
        FolderError, TokenizerError: a folder cannot be used.
    """
    loaded: dict[Path, Tokenizer] = {}

    def language(settings: ModelSettings) -> Language:
        folder = local_folder(settings.tokenizer, TOKENIZER_FILES)
        tokenizer = loaded[folder] = loaded.get(folder) or load_tokenizer(folder)
        return Language(settings, folder, tokenizer, chosen(tokenizer.template, settings.tool_parser))

    return Catalogue([language(one) for one in models], default)
