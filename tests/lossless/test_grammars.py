"""Outputs that grammars rule are lossless too: speculation, neighbours, preemption, moves and hits change nothing."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch
from tokenizers import Tokenizer

from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars
from services.common.request.sampling import FinishReason
from services.target.core.request import RequestSpec
from services.target.device.masks import Masks, Row
from tests.lossless.gate import EOS, STRAINS, Case, hybrid_arms, make_specs, run_case, run_gate
from tests.lossless.pairs import Pair, made_up_pair
from tests.lossless.proposers import WRONG, Breaking, adversarial
from tests.lossless.rig import Rig, RigSettings
from tests.support.schemas import schema

SEED, VOCAB, TOKENS = 20262, 320, 96
FEW, MANY = 5, 1000
FORMATS = ("date", "uuid", "ipv4")
"""Those that jsonschema judges as the standards do: RFC 3339's z of a time may be small."""
SHAPES = (
    ("perfect", 4, ""), ("adversarial", 8, ""), ("ngram", 8, ""), ("perfect", 8, "moved"), ("perfect", 4, "hit"),
    ("none", 1, "preempted"), ("perfect", 4, "preempted"),
)  # fmt: skip


@cache
def grammars() -> Grammars:
    return Grammars((made_up_pair().target / "tokenizer.json").read_text("utf-8"), VOCAB, EOS)


def ruled(temperature: float, count: int) -> list[RequestSpec]:
    """Requests of which every fifth has no grammar: a neighbour."""
    plain = make_specs(VOCAB, count, TOKENS, temperature, SEED)
    return [spec if index % 5 == 4 else with_schema(spec, index) for index, spec in enumerate(plain)]


def with_schema(spec: RequestSpec, seed: int) -> RequestSpec:
    rule = grammars().rule(Constraint(Form.JSON, json.dumps(schema(seed)), "schema"))
    stopping = replace(spec.stopping, ignore_eos=False)
    return replace(spec, grammar=grammars().grammar(rule), stopping=stopping)


def check_answers(pair: Pair, specs: list[RequestSpec], seed: int) -> Counter[FinishReason | None]:
    """Every answer that ends by itself validates; others were cut by their limit."""
    tokenizer = Tokenizer.from_file(str(pair.target / "tokenizer.json"))
    ends: Counter[FinishReason | None] = Counter()
    for index, (spec, done) in enumerate(
        zip(specs, run_case(pair, Case("float64", 0.0, 1, "none", 4), specs, {}, seed), strict=True)
    ):
        if spec.grammar is None:
            continue
        ends[done.end] += 1
        if done.end is FinishReason.STOP_TOKEN:
            answer = json.loads(tokenizer.decode(done.tokens, skip_special_tokens=True))
            validator = jsonschema.Draft202012Validator(schema(index), format_checker=jsonschema.FormatChecker(FORMATS))
            validator.validate(answer)
    return ends


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_answers_that_end_by_themselves_validate(
    temperature: float, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    specs = ruled(temperature, MANY if full else 6 * FEW)
    ends = check_answers(made_up_pair(), specs, SEED)
    assert set(ends) <= {FinishReason.STOP_TOKEN, FinishReason.LENGTH}
    assert ends[FinishReason.STOP_TOKEN] > len(specs) // 4
    report_counts("schemas_answered", ends[FinishReason.STOP_TOKEN])


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_text_is_that_of_plain_decoding(temperature: float, full: bool) -> None:
    specs = ruled(temperature, MANY if full else FEW)
    cases = [Case("float64", temperature, width, proposer, 4, strain) for proposer, width, strain in SHAPES]
    cases = cases if full else cases[temperature > 0 :: 2]  # each at one temperature
    tally = run_gate(made_up_pair(), cases, lambda _: specs, SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 5


@pytest.mark.timeout(7200)
def test_text_of_a_hybrid_is_that_of_plain_decoding(full: bool) -> None:
    pair = made_up_pair(family="qwen3_5")
    cases = [*hybrid_arms("qwen3_5", "float64", 0.8)] if full else [Case("float64", 0.8, 8, "perfect", 4, "moved")]
    tally = run_gate(pair, cases, lambda heat: ruled(heat, MANY if full else 5), SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > 0


def test_rounds_that_are_launched_ahead_wait_for_those_that_grammars_rule() -> None:
    """As on a GPU, where neighbours alone look ahead."""
    pair, specs = made_up_pair(), ruled(0.0, 2 * FEW)
    settings = RigSettings(dtype=torch.float64, eos_ids=EOS)
    with Rig(pair.target, pair.drafter, settings) as rig:
        wanted = rig.run(specs)
    truth = {spec.request_id: [*spec.token_ids, *done.tokens] for spec, done in zip(specs, wanted, strict=True)}
    ahead = replace(settings, width=4, look_ahead=1)
    with Rig(pair.target, pair.drafter, ahead, adversarial(truth, seed=5)) as rig:
        assert [(one.tokens, one.end) for one in rig.run(specs)] == [(one.tokens, one.end) for one in wanted]


@pytest.mark.parametrize("told", [True, False])
def test_drafts_that_break_a_grammar_are_mended_and_change_no_text(told: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they are walked behind their step's choices or, as on a GPU, before these are known."""
    choose = Masks._choose

    def walked_before(masks: Masks, row: Row, *told: Any) -> None:
        masks._walk_ahead([row])
        choose(masks, row, *told)

    if not told:
        monkeypatch.setattr(Masks, "_choose", walked_before)
    pair, specs = made_up_pair(), [spec for spec in ruled(0.0, 2 * FEW) if spec.grammar is not None]
    settings = RigSettings(dtype=torch.float64, eos_ids=EOS)
    with Rig(pair.target, pair.drafter, settings) as rig:
        wanted = rig.run(specs)
    with Rig(pair.target, pair.drafter, replace(settings, width=8), Breaking) as rig:
        found = rig.run(specs)
    assert [(one.tokens, one.end) for one in found] == [(one.tokens, one.end) for one in wanted]
    assert not any(WRONG in one.tokens for one in wanted)
    assert sum(one.accepted for one in found) > sum(len(one.tokens) for one in found) // 20


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("temperature", [pytest.param(0.0, marks=pytest.mark.whole), 0.8])
def test_mended_drafts_change_no_text_whatever_befalls_a_request(temperature: float, full: bool) -> None:
    """Every draft breaks its grammar, and is mended by what a walk knows, also where that has begun elsewhere."""
    specs = ruled(temperature, MANY if full else FEW)
    cases = [Case("float64", temperature, 8, "breaking", 4, strain) for strain in ("", *STRAINS)]
    first = 1 + (temperature > 0)
    tally = run_gate(made_up_pair(), cases if full else cases[first : first + 1], lambda _: specs, SEED)
    assert (tally.mismatches, tally.failures) == (0, [])
    assert tally.accepted > tally.tokens // 20
