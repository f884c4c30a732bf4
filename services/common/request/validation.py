"""The one validator: the gateway applies it to clients, the target again to gateways (invariant I8).

Every check is written as `not (low <= value <= high)` so that NaN fails it, looks at counts before contents so that its
work is bounded, and raises a PacelineError that names the field as the wire contract spells it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from services.common.request.constraint import Words
from services.common.request.errors import Code, PacelineError, Reason, invalid_field
from services.common.request.limits import LIMITS
from services.common.request.sampling import RANGES, Range, SamplingParams, SpeculationParams, StopParams

SMALLEST_PLAIN, LARGEST_PLAIN = 1e-9, 1e16
"""Numbers that are printed without an exponent."""

MAX_TOKENS = 2**31 - 1
MOST_WORD = LIMITS.bad_word_bytes + 1
"""Tokens of a word that is banned: of a blank and as many bytes as it may have."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a model allows: ids are in [0, vocab_size), prompt plus output is at most context_limit tokens."""

    vocab_size: int
    context_limit: int


def check_count(field: str, count: int, limit: int) -> None:
    """Refuses a repeated field with more than `limit` entries."""
    if count > limit:
        raise invalid_field(field, f"{count} entries, at most {limit} are allowed")


def check_range(field: str, value: float, low: float, high: float) -> None:
    """Refuses a number outside [low, high]; NaN is outside."""
    if not (low <= value <= high):
        raise invalid_field(field, f"{plain(value)} is not in [{plain(low)}, {plain(high)}]")


def plain(number: float) -> str:
    """A number as people write it: the fewest digits that name the same float32, and no exponent in between."""
    if isinstance(number, int) or not (SMALLEST_PLAIN <= abs(number) < LARGEST_PLAIN):
        return str(number or 0)
    texts = (f"{number:.{digits}g}" for digits in range(1, 10))
    text = next((text for text in texts if _float32(float(text)) == _float32(number)), repr(number))
    return f"{Decimal(text):f}"


def _float32(number: float) -> float:
    """The float32 next to it, as the wire carries it."""
    narrowed: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return narrowed


def check_token_ids(token_ids: Sequence[int], vocab_size: int, field: str) -> None:
    """Refuses ids outside the vocabulary."""
    if token_ids and not (min(token_ids) >= 0 and max(token_ids) < vocab_size):
        wrong = next(token for token in token_ids if not (0 <= token < vocab_size))
        raise invalid_field(field, f"token id {wrong} is not in [0, {vocab_size})")


def check_words(words: Words, vocab_size: int, allowed: str, banned: str) -> None:
    """Refuses lists of tokens that are too long, empty or outside the vocabulary, by their fields' names."""
    check_count(allowed, len(words.allowed), LIMITS.allowed_token_ids)
    check_token_ids(words.allowed, vocab_size, allowed)
    check_count(banned, len(words.banned), 2 * LIMITS.bad_words)
    for word in words.banned:
        if not 1 <= len(word) <= MOST_WORD:
            raise invalid_field(banned, f"a sequence of {len(word)} tokens, 1 to {MOST_WORD} are allowed")
        check_token_ids(word, vocab_size, banned)


def check_sampling(sampling: SamplingParams, vocab_size: int) -> None:
    """Refuses sampling parameters out of range."""
    for name, allowed in RANGES.items():
        _check_parameter(f"sampling.{name}", getattr(sampling, name), allowed)
    check_count("sampling.logit_bias", len(sampling.logit_bias), LIMITS.logit_bias)
    for token, bias in sampling.logit_bias:
        check_token_ids((token,), vocab_size, "sampling.logit_bias")
        check_range("sampling.logit_bias", bias, -100.0, 100.0)


def _check_parameter(field: str, value: float, allowed: Range) -> None:
    if not allowed.holds(value):
        not_in = f"neither 0 ({allowed.zero}) nor in" if allowed.zero else "not in"
        bounds = f"{'(' if allowed.open else '['}{plain(allowed.low)}, {plain(allowed.high)}]"
        raise invalid_field(field, f"{plain(value)} is {not_in} {bounds}")


def check_stopping(stopping: StopParams, vocab_size: int) -> None:
    """Refuses stop conditions out of range."""
    check_range("stopping.max_tokens", stopping.max_tokens, 1, MAX_TOKENS)
    check_range("stopping.min_tokens", stopping.min_tokens, 0, MAX_TOKENS)
    if stopping.min_tokens > stopping.max_tokens:
        raise invalid_field("stopping.min_tokens", f"{stopping.min_tokens} exceeds max_tokens {stopping.max_tokens}")
    check_count("stopping.stop", len(stopping.stop), LIMITS.stop_strings)
    for text in stopping.stop:
        size = len(text.encode(errors="surrogatepass"))
        if not (1 <= size <= LIMITS.stop_string_bytes):
            raise invalid_field(
                "stopping.stop", f"a string of {size} bytes, 1 to {LIMITS.stop_string_bytes} are allowed"
            )
    check_count("stopping.stop_token_ids", len(stopping.stop_token_ids), LIMITS.stop_token_ids)
    check_token_ids(stopping.stop_token_ids, vocab_size, "stopping.stop_token_ids")


def check_speculation(speculation: SpeculationParams) -> None:
    """Refuses a longest draft that is not a length."""
    if speculation.max_draft is not None:
        check_range("speculation.max_draft", speculation.max_draft, 0, 2**32 - 1)


def check_logprobs(count: int | None) -> None:
    """Refuses more log-probabilities than are kept."""
    if count is not None:
        check_range("logprobs", count, 0, LIMITS.logprobs)


def check_prompt_logprobs(count: int | None, prompt_length: int) -> None:
    """Refuses a number of alternatives for prompt tokens out of range, or too many of them in all."""
    if count is None:
        return
    check_range("prompt_logprobs", count, 0, LIMITS.logprobs)
    if prompt_length * (count + 1) > LIMITS.prompt_scores:
        text = (
            f"{count} for each of {prompt_length} tokens: with the tokens' own at most {LIMITS.prompt_scores} are told"
        )
        raise invalid_field("prompt_logprobs", text)


def check_priority(priority: int, highest: int = LIMITS.priority) -> None:
    """Refuses a priority out of range, or above the highest that is allowed."""
    check_range("priority", priority, -LIMITS.priority, highest)


def check_key(key: str) -> None:
    """Refuses an idempotency key that is too long."""
    size = len(key.encode(errors="surrogatepass"))
    if size > LIMITS.idempotency_key_bytes:
        raise invalid_field("idempotency_key", f"{size} bytes, at most {LIMITS.idempotency_key_bytes} are allowed")


def check_prompt(token_ids: Sequence[int], prompt_length: int, bounds: Bounds, field: str = "prompt") -> None:
    """Refuses a prompt that is empty, holds foreign ids or leaves no room for one token of output.

    Args:
        token_ids: the prompt followed by output already committed.
        prompt_length: how many of them are the prompt.
        bounds: what the model allows.
        field: name that errors state.

    Raises:
        PacelineError: INVALID_FIELD, or CONTEXT_LIMIT when there are too many tokens.
    """
    if not token_ids:
        raise invalid_field(field, "the prompt is empty")
    if not (1 <= prompt_length <= len(token_ids)):
        raise invalid_field("prompt_length", f"{prompt_length} is not in [1, {len(token_ids)}]")
    if len(token_ids) >= bounds.context_limit:
        text = f"{len(token_ids)} tokens leave no room for output: the context limit is {bounds.context_limit}"
        raise PacelineError(Code.INVALID_ARGUMENT, Reason.CONTEXT_LIMIT, text, field=field)
    check_token_ids(token_ids, bounds.vocab_size, field)


def check_options(
    sampling: SamplingParams,
    stopping: StopParams,
    speculation: SpeculationParams,
    logprobs: int | None,
    priority: int,
    key: str,
    vocab_size: int,
) -> None:
    """Everything of a request but its prompt; bounded work, so it may run before the prompt is tokenised."""
    check_sampling(sampling, vocab_size)
    check_stopping(stopping, vocab_size)
    check_speculation(speculation)
    check_logprobs(logprobs)
    check_priority(priority)
    check_key(key)
