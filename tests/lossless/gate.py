"""The lossless gate (I1): with every width, proposer and batch a request must get the text of plain decoding.

It passes when `Tally.mismatches` is 0. A proposer makes a case's drafts, in this process in place of a drafter's.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product

import torch

from services.common.model.families import read_target_spec
from services.common.request.sampling import FinishReason, SamplingParams, StopParams
from services.target.core.request import RequestSpec
from tests.lossless.oracle import Oracle
from tests.lossless.pairs import Pair, made_up_pair
from tests.lossless.proposers import Breaking, adversarial, perfect
from tests.lossless.rig import Done, ProposerFactory, Rig, RigSettings
from tests.lossless.served import dflash, ngram
from tests.lossless.trees import broken, scattered
from tests.lossless.wired import lying, wired

DTYPES = {"float64": torch.float64, "float32": torch.float32}
PROPOSERS = ("dflash", "ngram", "adversarial", "perfect", "wire-dflash", "wire-ngram", "wire-adversarial")
"""`perfect` knows the text, `adversarial` sends what is wrong or stale, `wire-` ones answer by HandoffMode.WIRE."""
NODE_PROPOSERS = ("nodes-dflash", "nodes-scattered", "nodes-broken", "nodes-wire-dflash")
"""Those of trees: the drafter's, the truth among wrong siblings, trees that are wrong in every way, and by wire."""
MEMORY = {"wire-dflash": "shared", "wire-ngram": "none", "wire-adversarial": "shared", "nodes-wire-dflash": "shared"}
"""What memory the `wire-` proposers share with the target."""
FAMILIES = ("llama", "qwen2")
"""Families of further targets that the gate runs."""
FAMILY_PROPOSERS = ("ngram", "perfect")
"""Their proposers; `perfect` is among them because random text has few repetitions for `ngram`."""
HYBRIDS = {"qwen3_5": ("dflash", "ngram", "perfect", "adversarial"), "qwen3_next": FAMILY_PROPOSERS}
"""Hybrids, which are families with recurrent layers beside attention, and their proposers."""
WIDTHS, HYBRID_WIDTHS = (4, 8), (4, 8, 16)
TIGHT = 14
"""Blocks that hold no more than the two longest requests."""
LONGEST = 8
"""Rows of the drafter's block."""
STRAINS = ("preempted", "moved", "hit")
"""What may befall the requests of a case: blocks run out, or another target or the same one continues their text.

The same one goes on from what it has cached.
"""
EOS = (0,)
"""Of the made-up pairs; requests without a grammar ignore it."""
Truth = Mapping[str, Sequence[int]]
"""Prompt and plain output of each request, by its id."""
Run = Callable[[Sequence[RequestSpec]], list[Done]]
"""Runs requests to their end."""


@dataclass(frozen=True, slots=True)
class Case:
    """All requests at one `Plan.width`, `batch` at a time; width 1 has no proposer, `strain` is of STRAINS or empty.

    With `coded` keys and values have eight bits, `activations` are those of products. Of `ragged` rows together
    each request has any number of pieces of `grain`, `width` rows at most.
    """

    dtype: str
    temperature: float
    width: int
    proposer: str
    batch: int
    strain: str = ""
    coded: bool = False
    activations: str = "auto"
    ragged: int = 0
    grain: int = 1


OTHER_FAMILIES = (
    Case("float64", 0.0, 8, "dflash", 4, "hit"),
    Case("float64", 0.8, 4, "ngram", 1),
    Case("float64", 0.0, 4, "adversarial", 4, "preempted"),
    Case("float64", 0.8, 8, "perfect", 4, "moved"),
)
"""What of the sweep over a family beside the embedded ones runs by default: every strain, every proposer."""


@dataclass(slots=True)
class Tally:
    """Counts of the gate. `excused` texts of float32 differ from plain decoding first at a near tie (`Oracle.excuses`).

    Every other difference, and each of float64 or of eight bits, is one of `mismatches`. `accepted` drafts and
    `cached` tokens show that speculation and the prefix cache were at work.
    """

    cases: int = 0
    tokens: int = 0
    rounds: int = 0
    accepted: int = 0
    cached: int = 0
    mismatches: int = 0
    excused: int = 0
    failures: list[dict[str, object]] = field(default_factory=list)

    def merge(self, other: "Tally") -> None:
        """Adds the counts of other cases."""
        for name in (one.name for one in fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add(self, case: Case, spec: RequestSpec, expected: Done, got: Done, oracle: Oracle) -> None:
        """Compares one request of one case with plain decoding."""
        self.tokens += len(got.tokens)
        self.rounds += got.rounds
        self.accepted += got.accepted
        self.cached += got.cached
        if (got.tokens, got.end) == (expected.tokens, expected.end):
            return
        eight = case.coded or case.activations != "auto"
        if case.dtype == "float32" and not eight and oracle.excuses(spec, expected.tokens, got.tokens):
            self.excused += 1
            return
        self.mismatches += 1
        self.failures.append(asdict(case) | {"request": spec.request_id})


def arms(dtype: str, temperature: float, proposers: Sequence[str], widths: Sequence[int]) -> Iterator[Case]:
    """Every case of one data type and temperature beside the plain one of batch 1."""
    yield Case(dtype, temperature, 1, "none", 4)
    for width in widths:
        for proposer in proposers:
            for batch in (1, 4):
                yield Case(dtype, temperature, width, proposer, batch)


def hybrid_arms(family: str, dtype: str, temperature: float) -> Iterator[Case]:
    """Every case of a hybrid, those in which requests are interrupted among them."""
    yield from arms(dtype, temperature, HYBRIDS[family], HYBRID_WIDTHS)
    for width, strain in product(HYBRID_WIDTHS, STRAINS):
        yield Case(dtype, temperature, width, "perfect", 4, strain)
    for strain in STRAINS:
        yield Case(dtype, temperature, 1, "none", 4, strain)


def make_specs(vocab: int, prompts: int, tokens: int, temperature: float, seed: int) -> list[RequestSpec]:
    """Requests with random prompts of 4 to 80 tokens; id 1, the mask, is never among them."""
    source = random.Random(seed)
    specs = []
    for index in range(prompts):
        ids = tuple(source.randrange(2, vocab) for _ in range(source.randrange(4, 81)))
        sampling = SamplingParams(temperature=temperature, seed=source.randrange(2**63))
        stopping = StopParams(max_tokens=tokens, ignore_eos=True)
        specs.append(RequestSpec(f"r{index}", ids, len(ids), sampling, stopping))
    return specs


def run_part(
    pair: Pair, proposers: Sequence[str], dtype: str, temperature: float, prompts: int, tokens: int, seed: int
) -> Tally:
    """All cases of one data type and temperature: what one process of the whole gate does."""
    specs = make_specs(read_target_spec(pair.target).vocab_size, prompts, tokens, temperature, seed)
    return run_gate(pair, list(arms(dtype, temperature, proposers, WIDTHS)), lambda _: specs, seed)


def run_hybrid_part(family: str, dtype: str, temperature: float, prompts: int, tokens: int, seed: int) -> Tally:
    """The same for a hybrid, with wider rounds, and with requests that are interrupted."""
    pair = made_up_pair(family=family)
    specs = make_specs(read_target_spec(pair.target).vocab_size, prompts, tokens, temperature, seed)
    return run_gate(pair, list(hybrid_arms(family, dtype, temperature)), lambda _: specs, seed)


def run_gate(pair: Pair, cases: Sequence[Case], specs_of: Callable[[float], list[RequestSpec]], seed: int = 1) -> Tally:
    """Runs plain decoding once per data type and temperature, then every case against it."""
    tally, oracle = Tally(), Oracle(pair.target)
    plain: dict[tuple[str, float, bool, str], list[Done]] = {}
    for case in cases:
        specs = specs_of(case.temperature)
        key = (case.dtype, case.temperature, case.coded, case.activations)
        if key not in plain:
            alone = replace(case, width=1, proposer="none", batch=1, strain="")
            plain[key] = run_case(pair, alone, specs, {}, seed)
        truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, plain[key], strict=True)}
        done = run_case(pair, case, specs, truth, seed)
        tally.cases += 1
        for spec, expected, got in zip(specs, plain[key], done, strict=True):
            tally.add(case, spec, expected, got, oracle)
    return tally


def run_case(pair: Pair, case: Case, specs: Sequence[RequestSpec], truth: Truth, seed: int) -> list[Done]:
    """All requests of one case, `batch` at a time."""
    with _rig(pair, case, truth, seed) as rig:
        if case.strain == "hit":
            groups = (specs[at : at + case.batch] for at in range(0, len(specs), case.batch))
            return [done for group in groups for done in _run_in_two_parts(group, rig.run, rig.run)]
        if case.strain != "moved":
            return rig.run(specs)
        with _rig(pair, case, truth, seed + 1) as other:
            return _run_in_two_parts(specs, rig.run, other.run)


def _run_in_two_parts(specs: Sequence[RequestSpec], first: Run, second: Run) -> list[Done]:
    """Begins requests in one place, and continues them in another or there again."""
    stopped = [replace(spec, stopping=replace(spec.stopping, max_tokens=_cut(spec))) for spec in specs]
    before = first(stopped)
    cut = [(spec, done) for spec, done in zip(specs, before, strict=True) if done.end is FinishReason.LENGTH]
    rest = second([replace(spec, token_ids=(*spec.token_ids, *done.tokens)) for spec, done in cut])
    last = {spec.request_id: done for (spec, _), done in zip(cut, rest, strict=True)}
    return [
        replace(last[spec.request_id], tokens=begun.tokens + last[spec.request_id].tokens)
        if spec.request_id in last
        else begun
        for spec, begun in zip(specs, before, strict=True)
    ]


def _cut(spec: RequestSpec) -> int:
    """How many tokens of a moved request come from the first target: at least one, never all."""
    most = spec.stopping.max_tokens
    return 1 + sum(spec.token_ids) % (most - 1)


def _rig(pair: Pair, case: Case, truth: Truth, seed: int) -> Rig:
    buckets = (1,) if case.batch == 1 else (1, 2, case.batch)
    settings = RigSettings(
        width=case.width,
        slots=case.batch,
        dtype=DTYPES[case.dtype],
        buckets=buckets,
        drafter_memory=MEMORY.get(case.proposer, ""),
        eos_ids=EOS,
        nodes=case.proposer in NODE_PROPOSERS,
        between=min(case.width, LONGEST) if case.batch > 1 else 0,
        coded=case.coded,
        activations=case.activations,
        ragged=case.ragged if case.width > 1 else 0,
        grain=case.grain,
    )
    if case.strain == "preempted":
        settings = replace(settings, blocks=TIGHT, preemption=True)
    return Rig(pair.target, pair.drafter, settings, _proposer(case.proposer, pair, truth, seed))


def _proposer(name: str, pair: Pair, truth: Truth, seed: int) -> ProposerFactory | None:
    if name == "none":
        return None
    if name in MEMORY and name != "wire-adversarial":
        return wired(None if name == "wire-ngram" else pair.drafter)
    knowing = {
        "adversarial": adversarial,
        "wire-adversarial": lying,
        "nodes-scattered": scattered,
        "nodes-broken": broken,
    }
    if name in knowing:
        return knowing[name](truth, seed)
    if name == "perfect":
        return perfect(truth)
    if name == "breaking":
        return Breaking
    return ngram() if name == "ngram" else dflash(pair.drafter)
