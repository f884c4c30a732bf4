"""What becomes of shapes that differ in each mode, and which verdicts are kept (made-up steps, real files)."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from services.common.device.numerics import Numerics
from services.common.kernels.cuda import FOLDER
from services.common.kernels.linear import allowed
from services.common.model import load_target
from services.common.request.errors import Code, PacelineError
from services.target.device.exact import check
from services.target.device.exact.check import ExactCheck, ExactMode, Exactness, verdict_key
from services.target.device.exact.shape import Shape, prefill, verify
from services.target.device.exact.verdict import Verdict, VerdictFile
from services.target.device.shapes import PackShape, RunnerSettings
from tests.lossless.pairs import made_up_pair
from tests.support.told import told

SHAPES = (verify(1, 1), verify(2, 1), verify(2, 4), prefill(1, 8), prefill(4, 8))
WRONG = verify(2, 4)
NUMERICS = Numerics(release="1.0.0", device="GPU", libraries={"torch": "2"}, dtype="bfloat16")


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """The refusals are the process's."""
    allowed.allow_all()
    yield
    allowed.allow_all()


@dataclass
class MadeUpSteps:
    """Steps that differ as long as the library computes them, or for ever."""

    wrong: tuple[Shape, ...] = ()
    for_ever: bool = False
    incomparable: str = ""
    shapes: tuple[Shape, ...] = SHAPES
    products: tuple[tuple[int, int], ...] = ((6, 4), (4, 6))
    captured: dict[Shape, bool] = field(default_factory=dict)
    compared: int = 0

    def __post_init__(self) -> None:
        self.renew(self.shapes)
        self.renewed: list[Shape] = []

    def differing(self, only: Iterable[Shape] | None = None) -> tuple[Shape, ...]:
        self.compared += 1
        asked = self.shapes if only is None else tuple(only)
        return tuple(one for one in asked if one in self.wrong and (self.for_ever or self.captured[one]))

    def renew(self, shapes: Iterable[Shape]) -> None:
        self.renewed = list(shapes)
        self.captured |= {one: allowed.allowed(6, 4, one.rows) for one in self.renewed}


def start(mode: ExactMode, steps: MadeUpSteps, folder: Path, unchecked: str = "", key: str = "key") -> Exactness:
    """One start of a target: recalls, captures, judges."""
    allowed.allow_all()
    made = ExactCheck(mode, VerdictFile(key, folder), unchecked)
    made.recall()
    steps.renew(steps.shapes)
    made.judge(steps)
    return made.found


@pytest.mark.parametrize("mode", [ExactMode.FALLBACK, ExactMode.STRICT])
def test_equal_rows_are_told_and_kept(mode: ExactMode, tmp_path: Path) -> None:
    steps = MadeUpSteps()
    assert start(mode, steps, tmp_path) == Exactness(mode=mode, verdict=Verdict(shapes=5))
    assert start(mode, steps, tmp_path) == Exactness(mode=mode, verdict=Verdict(shapes=5), kept=True)
    assert steps.compared == 1


def test_a_shape_that_differs_falls_back_to_own_products(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Every shape of as many rows is captured anew: its products are kept from the library too."""
    steps = MadeUpSteps(wrong=(WRONG,))
    found = start(ExactMode.FALLBACK, steps, tmp_path)
    refused = ((6, 4, 8), (4, 6, 8))
    assert found.verdict == Verdict(shapes=5, mended=("verify 2 x 4",), refused=refused)
    assert allowed.refused() == tuple(sorted(refused))
    assert steps.renewed == [WRONG, prefill(1, 8)]
    (warned,) = [record for record in told(caplog) if record.levelno == logging.WARNING]
    assert vars(warned)["mended"] == ("verify 2 x 4",)


def test_a_start_knows_whether_an_earlier_one_captured_the_same(tmp_path: Path) -> None:
    def known(mode: ExactMode, key: str) -> bool:
        return ExactCheck(mode, VerdictFile(key, tmp_path)).recall()

    assert not known(ExactMode.FALLBACK, "key")
    start(ExactMode.FALLBACK, MadeUpSteps(), tmp_path)
    assert known(ExactMode.FALLBACK, "key")
    assert not known(ExactMode.FALLBACK, "another") and not known(ExactMode.OFF, "key")
    allowed.allow_all()


def test_a_kept_verdict_falls_back_before_steps_are_captured(tmp_path: Path) -> None:
    steps = MadeUpSteps(wrong=(WRONG,))
    first = start(ExactMode.FALLBACK, steps, tmp_path)
    again = start(ExactMode.FALLBACK, steps, tmp_path)
    assert again == replace(first, kept=True)
    assert steps.compared == 2 and not steps.captured[WRONG]
    assert steps.renewed == list(SHAPES), "no step is captured twice"


def test_a_shape_that_own_products_do_not_mend_is_named_and_keeps_the_library(tmp_path: Path) -> None:
    steps = MadeUpSteps(wrong=(WRONG,), for_ever=True)
    found = start(ExactMode.FALLBACK, steps, tmp_path)
    assert found.verdict == Verdict(shapes=5, differing=("verify 2 x 4",))
    assert allowed.refused() == () and steps.captured[WRONG]


def test_strict_refuses_to_start_and_names_the_shapes(tmp_path: Path) -> None:
    steps = MadeUpSteps(wrong=(WRONG, prefill(4, 8)))
    with pytest.raises(PacelineError, match=r"exact: .*verify 2 x 4, prefill 4 x 8") as refusal:
        start(ExactMode.STRICT, steps, tmp_path)
    assert (refusal.value.code, refusal.value.field) == (Code.FAILED_PRECONDITION, "exact")
    assert allowed.refused() == ()
    start(ExactMode.FALLBACK, steps, tmp_path)
    with pytest.raises(PacelineError, match="verify 2 x 4, prefill 4 x 8"):
        start(ExactMode.STRICT, steps, tmp_path)


def test_strict_refuses_what_cannot_be_compared(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="there are too few blocks"):
        start(ExactMode.STRICT, MadeUpSteps(incomparable="there are too few blocks"), tmp_path)


def test_off_compares_nothing_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start(ExactMode.FALLBACK, MadeUpSteps(wrong=(WRONG,)), tmp_path)
    caplog.set_level(logging.INFO)
    steps = MadeUpSteps(wrong=(WRONG,))
    assert start(ExactMode.OFF, steps, tmp_path) == Exactness(mode=ExactMode.OFF, unchecked="it is off")
    assert steps.compared == 0 and allowed.refused() == ()
    assert "it is off" in caplog.text


def test_what_cannot_be_compared_is_told(tmp_path: Path) -> None:
    steps = MadeUpSteps(wrong=(WRONG,))
    found = start(ExactMode.FALLBACK, steps, tmp_path, unchecked="on a CPU")
    assert (found.unchecked, found.verdict, steps.compared) == ("on a CPU", None, 0)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"shapes": 5, "mended": 1, "differing": [], "refused": []}'])
def test_a_file_that_cannot_be_read_is_compared_again(text: str, tmp_path: Path) -> None:
    steps, file = MadeUpSteps(), VerdictFile("key", tmp_path)
    start(ExactMode.FALLBACK, steps, tmp_path)
    file.path.write_text(text)
    assert start(ExactMode.FALLBACK, steps, tmp_path) == Exactness(mode=ExactMode.FALLBACK, verdict=Verdict(shapes=5))
    assert steps.compared == 2
    assert [path.name for path in file.path.parent.iterdir()] == ["key.json"]


def test_a_verdict_that_cannot_be_kept_is_still_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert start(ExactMode.FALLBACK, MadeUpSteps(), blocked).verdict == Verdict(shapes=5)


def test_verdicts_lie_beside_the_compiled_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert VerdictFile("key").path == tmp_path / "paceline-exact" / "key.json"


@pytest.mark.parametrize(
    "changed",
    [FOLDER / name for name in ("linear/allowed.py", "linear/persistent/product.cu", "include/tma.cuh")],
)
def test_new_kernels_are_compared_anew(changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = check._sources(), Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + (b"\n" if path == changed else b""))
    assert check._sources() != before


def test_a_verdict_is_of_numerics_models_shapes_and_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_target(made_up_pair().target).spec
    shapes = RunnerSettings(slots=2, blocks=9, context_limit=64)
    key = verdict_key(NUMERICS, model, None, shapes)
    assert key == verdict_key(NUMERICS, model, None, replace(shapes, slots=1, blocks=99))
    others = [
        verdict_key(replace(NUMERICS, libraries={"torch": "3"}), model, None, shapes),
        verdict_key(replace(NUMERICS, device="GPU 2"), model, None, shapes),
        verdict_key(replace(NUMERICS, release="1.0.1"), model, None, shapes),
        verdict_key(NUMERICS, replace(model, hidden_size=64), None, shapes),
        verdict_key(NUMERICS, model, model, shapes),
        verdict_key(NUMERICS, model, None, replace(shapes, widths=(1, 2))),
        verdict_key(NUMERICS, model, None, replace(shapes, packs=(PackShape(1, 8),))),
    ]
    assert len({key, *others}) == 8
    assert len(check._sources()) == 64
    monkeypatch.setattr(check, "_sources", lambda: "other")
    assert verdict_key(NUMERICS, model, None, shapes) != key
