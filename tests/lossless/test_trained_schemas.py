"""Answers of the embedded pairs follow their schemas, and are the same with their drafters and without."""

import json
from collections.abc import Callable
from functools import cache
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
FEW, MANY, PROMPT, TOKENS, VOCAB = 3, 1000, 80, 160, 1024


@cache
def tools(pair: str) -> tuple[Tokenizer, Grammars]:
    text = (MODELS / pair / "target" / "tokenizer.json").read_text("utf-8")
    return Tokenizer.from_str(text), Grammars(text, VOCAB, EOS)


def asked(pair: str, temperature: float, count: int) -> list[RequestSpec]:
    """One request for each schema, with a prompt that shows it."""
    tokenizer, grammars = tools(pair)
    found = []
    for seed in range(count):
        text = json.dumps(schema(seed))
        grammar = grammars.grammar(grammars.rule(Constraint(Form.JSON, text, "schema")))
        ids = tokenizer.encode(f"value = None  # {text}").ids[:PROMPT]
        sampling, stopping = SamplingParams(temperature=temperature, seed=seed), StopParams(max_tokens=TOKENS)
        found.append(RequestSpec(f"r{seed}", tuple(ids), len(ids), sampling, stopping, grammar=grammar))
    return found


def answered(name: str, temperature: float, count: int) -> int:
    """Runs plain and drafted, and judges every answer that ends by itself; how many do."""
    pair = Pair(MODELS / name / "target", MODELS / name / "drafter")
    specs = asked(name, temperature, count)
    plain = run_case(pair, Case("float64", temperature, 1, "none", 4), specs, {}, 1)
    drafted = run_case(pair, Case("float64", temperature, 8, "dflash", 4), specs, {}, 1)
    assert [(one.tokens, one.end) for one in drafted] == [(one.tokens, one.end) for one in plain]
    assert sum(one.accepted for one in drafted) > 0
    assert {done.end for done in drafted} <= {FinishReason.STOP_TOKEN, FinishReason.LENGTH}
    whole = [(seed, done) for seed, done in enumerate(drafted) if done.end is FinishReason.STOP_TOKEN]
    for seed, done in whole:
        said = json.loads(tools(name)[0].decode(done.tokens, skip_special_tokens=True))
        checker = jsonschema.FormatChecker(FORMATS)
        jsonschema.Draft202012Validator(schema(seed), format_checker=checker).validate(said)
    return len(whole)


@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("name", PAIRS)
def test_answers_validate_and_drafts_change_nothing(
    name: str, full: bool, report_counts: Callable[[str, int], None]
) -> None:
    count = MANY if full else FEW
    for temperature in (0.0, 0.8) if full else (SAMPLED[name],):
        found = answered(name, temperature, count)
        assert found > count // 4
        report_counts("trained_schemas_answered", found)
