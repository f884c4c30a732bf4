"""Answers of the embedded pairs follow their schemas, and are the same with their drafters and without."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import jsonschema
import pytest
from tokenizers import Tokenizer

from services.common.request.constraint import Constraint, Form
from services.common.request.grammar import Grammars
from services.common.request.sampling import FinishReason, SamplingParams, StopParams
from services.target.core.request import RequestSpec
from tests.lossless.gate import EOS, Case, run_case
from tests.lossless.pairs import Pair
from tests.lossless.test_grammars import FORMATS
from tests.support.schemas import schema

MODELS = Path(__file__).parents[2] / "models"
PAIRS = ("embedded", "embedded-hybrid")
SAMPLED = {"embedded": 0.8, "embedded-hybrid": 0.0}
FEW, MANY, PART, PROMPT, TOKENS, VOCAB = 3, 1000, 50, 80, 48, 1024
BATCH = 8


@cache
def tools(pair: str) -> tuple[Tokenizer, Grammars]:
    text = (MODELS / pair / "target" / "tokenizer.json").read_text("utf-8")
    return Tokenizer.from_str(text), Grammars(text, VOCAB, EOS)


def asked(pair: str, temperature: float, seeds: range) -> list[RequestSpec]:
    """One request for each schema, with a prompt that shows it."""
    tokenizer, grammars = tools(pair)
    found = []
    for seed in seeds:
        text = json.dumps(schema(seed))
        grammar = grammars.grammar(grammars.rule(Constraint(Form.JSON, text, "schema")))
        ids = tokenizer.encode(f"value = None  # {text}").ids[:PROMPT]
        sampling, stopping = SamplingParams(temperature=temperature, seed=seed), StopParams(max_tokens=TOKENS)
        found.append(RequestSpec(f"r{seed}", tuple(ids), len(ids), sampling, stopping, grammar=grammar))
    return found


@dataclass
class Counts:
    """Of one cell: answers that ended by themselves, those of them that break their schema, texts that differ."""

    asked: int = 0
    ended: int = 0
    invalid: int = 0
    differ: int = 0


def answered(name: str, temperature: float, seeds: range) -> Counts:
    """Runs plain and drafted, and judges every answer that ends by itself."""
    pair = Pair(MODELS / name / "target", MODELS / name / "drafter")
    specs = asked(name, temperature, seeds)
    plain = run_case(pair, Case("float64", temperature, 1, "none", BATCH), specs, {}, 1)
    drafted = run_case(pair, Case("float64", temperature, 8, "dflash", BATCH), specs, {}, 1)
    assert sum(one.accepted for one in drafted) > 0
    assert {done.end for done in drafted} <= {FinishReason.STOP_TOKEN, FinishReason.LENGTH}
    counts = Counts(asked=len(seeds))
    for seed, one, other in zip(seeds, drafted, plain, strict=True):
        counts.differ += (one.tokens, one.end) != (other.tokens, other.end)
        if one.end is FinishReason.STOP_TOKEN:
            counts.ended += 1
            counts.invalid += not follows(seed, tools(name)[0].decode(one.tokens, skip_special_tokens=True))
    return counts


def follows(seed: int, said: str) -> bool:
    """Whether an answer is JSON that its schema allows."""
    checker = jsonschema.FormatChecker(FORMATS)
    try:
        jsonschema.Draft202012Validator(schema(seed), format_checker=checker).validate(json.loads(said))
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """With --full 1,000 schemas of each pair and temperature, in parts that can be run one by one."""
    if "seeds" in metafunc.fixturenames:
        parts = [range(first, first + PART) for first in range(0, MANY, PART)]
        some = [(name, temperature, range(FEW)) for name, temperature in SAMPLED.items()]
        cells = [*product(PAIRS, (0.0, 0.8), parts)] if metafunc.config.getoption("full") else some
        ids = [f"{name}-{temperature}-{seeds.start}" for name, temperature, seeds in cells]
        metafunc.parametrize(("name", "temperature", "seeds"), cells, ids=ids)


@pytest.mark.timeout(1_200)
def test_answers_validate_and_drafts_change_nothing(
    name: str, temperature: float, seeds: range, report_counts: Callable[[str, int], None]
) -> None:
    """With --full most answers end within their tokens."""
    counts = answered(name, temperature, seeds)
    assert (counts.invalid, counts.differ) == (0, 0), counts
    assert counts.ended > counts.asked // 4
    report_counts("trained_schemas_answered", counts.ended)


def test_an_answer_that_breaks_its_schema_is_told() -> None:
    assert not follows(1, '{"a": 1}')
    assert not follows(1, "[")
