"""python -m tests.bench.embedded: the embedded pair, served over gRPC, against plain decoding and transformers.

Prints a table and one JSON line, and saves it with --save.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

from deploy.demo import pair_settings, read_prompts
from deploy.stack import REPOSITORY, Stack, StackSettings
from paceline import Answer, Client, Options

ALTERNATIONS = 5
TEMPERATURES = (0.0, 0.8)


@dataclass(frozen=True)
class Acceptance:
    """Tokens per round over all prompts, and the share of distinct 4-grams in what was written.

    `drafter_weights` is what a DFlash drafter's products read.
    """

    proposer: str
    drafter_weights: str
    temperature: float
    prompts: int
    tokens: int
    tau: float
    distinct_4grams: float


@dataclass(frozen=True)
class Speed:
    """Ratio of two single-stream decode speeds, taken in turn: the median over prompts, and the spread."""

    what: str
    temperature: float
    median: float
    least: float
    most: float
    numerator_tok_s: float
    denominator_tok_s: float


def main() -> int:
    """Runs every measurement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--speed-prompts", type=int, default=8, help="0: acceptance alone")
    parser.add_argument(
        "--drafter-weights", nargs="+", choices=["dtype", "int8"], default=["dtype"], help="of dflash, each in turn"
    )
    parser.add_argument("--hybrid", action="store_true", help="measure the pair whose target is a hybrid")
    parser.add_argument("--save", default="")
    chosen = parser.parse_args()
    pair, prompts = pair_settings(chosen.hybrid), read_prompts("", chosen.prompts)
    rows: list[Acceptance] = []
    for proposer, weights in [*(("dflash", weights) for weights in chosen.drafter_weights), ("ngram", "dtype")]:
        rows += acceptance(replace(pair, proposer=proposer), weights, prompts, chosen.tokens)
    speeds = speed(pair, prompts[: chosen.speed_prompts], 128) if chosen.speed_prompts else []
    report(rows, speeds, chosen.save)
    return 0


def acceptance(pair: StackSettings, weights: str, prompts: Sequence[str], tokens: int) -> list[Acceptance]:
    """Tau at the widest width, greedy and sampled, with a drafter of such weights."""
    flags, proposer = ["--adaptive", "false", "--drafter-weights", weights], pair.proposer
    settings = replace(pair, cluster_flags=flags)
    rows = []
    with Stack(settings, progress=note) as stack, Client(stack.gateway_address) as client:
        for temperature in TEMPERATURES:
            note(f"{proposer}, {weights}: {len(prompts)} prompts at temperature {temperature}")
            results = [client.generate(p, options(tokens, temperature, i)) for i, p in enumerate(prompts)]
            rounds, accepted = sum(r.rounds for r in results), sum(r.accepted for r in results)
            rows.append(
                Acceptance(
                    proposer=proposer,
                    drafter_weights=weights,
                    temperature=temperature,
                    prompts=len(prompts),
                    tokens=sum(len(r.tokens) for r in results),
                    tau=round((accepted + rounds) / rounds, 3),
                    distinct_4grams=round(distinct(results), 3),
                )
            )
    return rows


def options(tokens: int, temperature: float = 0.0, seed: int = 0, on: bool = True) -> Options:
    """A generation of exactly that many tokens."""
    return Options(max_tokens=tokens, temperature=temperature, seed=seed, speculation=on, ignore_eos=True)


def distinct(results: Iterable[Answer]) -> float:
    """Share of 4-grams that are the first of their kind within their text."""
    every = [[tuple(r.tokens[i : i + 4]) for i in range(len(r.tokens) - 3)] for r in results]
    return sum(len(set(grams)) for grams in every) / sum(len(grams) for grams in every)


def speed(pair: StackSettings, prompts: Sequence[str], tokens: int) -> list[Speed]:
    """Speculative against plain, and plain against transformers, in turn on the same prompts."""
    with Stack(pair, progress=note) as stack, Client(stack.gateway_address) as client:
        client.generate(prompts[0], options(tokens))
        rows = [speculation(client, prompts, tokens, temperature) for temperature in TEMPERATURES]
        return [*rows, against_transformers(client, pair.model, prompts, tokens)]


def speculation(client: Client, prompts: Sequence[str], tokens: int, temperature: float) -> Speed:
    """Speculative over plain."""
    note(f"speculative and plain in turn at temperature {temperature}")
    pairs = []
    for prompt in prompts:
        spec, plain = [], []
        for seed in range(ALTERNATIONS):
            spec.append(client.generate(prompt, options(tokens, temperature, seed)).decode_tok_s)
            plain.append(client.generate(prompt, options(tokens, temperature, seed, on=False)).decode_tok_s)
        pairs.append((statistics.median(spec), statistics.median(plain)))
    return summarise("speculative / plain", temperature, pairs)


def against_transformers(client: Client, folder: str, prompts: Sequence[str], tokens: int) -> Speed:
    """Our plain decoding over the generate method of transformers, greedy, with its K/V cache, one thread each."""
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM

    note("plain and transformers in turn")
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    pairs = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt).ids])
        ours, theirs = [], []
        for _ in range(ALTERNATIONS):
            ours.append(client.generate(prompt, options(tokens, on=False)).decode_tok_s)
            theirs.append(decode_speed(model, ids, tokens))
        pairs.append((statistics.median(ours), statistics.median(theirs)))
    return summarise("plain / transformers", 0.0, pairs)


def decode_speed(model: "object", ids: "object", tokens: int) -> float:
    """Tokens per second of transformers after the first token."""
    import torch

    options = {"do_sample": False, "use_cache": True, "pad_token_id": 0, "eos_token_id": None}
    with torch.inference_mode():
        start = time.perf_counter()
        model.generate(ids, max_new_tokens=1, min_new_tokens=1, **options)  # type: ignore[attr-defined]
        first = time.perf_counter()
        model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, **options)  # type: ignore[attr-defined]
        end = time.perf_counter()
    return (tokens - 1) / ((end - first) - (first - start))


def summarise(what: str, temperature: float, pairs: Sequence[tuple[float, float]]) -> Speed:
    """Median and spread of the ratios of (numerator, denominator) pairs."""
    ratios = [a / b for a, b in pairs]
    return Speed(
        what=what,
        temperature=temperature,
        median=round(statistics.median(ratios), 3),
        least=round(min(ratios), 3),
        most=round(max(ratios), 3),
        numerator_tok_s=round(statistics.median(a for a, _ in pairs), 1),
        denominator_tok_s=round(statistics.median(b for _, b in pairs), 1),
    )


def report(rows: Sequence[Acceptance], speeds: Sequence[Speed], save: str) -> None:
    """Prints the table and the JSON line."""
    for row in rows:
        print(
            f"{row.proposer:<8} {row.drafter_weights:<5} T={row.temperature}  tau {row.tau:.3f}  "
            f"distinct 4-grams {row.distinct_4grams:.2f}"
        )
    for s in speeds:
        print(
            f"{s.what:<22} T={s.temperature}  {s.median:.2f} ({s.least:.2f}-{s.most:.2f})   "
            f"{s.numerator_tok_s:.0f} / {s.denominator_tok_s:.0f} tok/s"
        )
    document = {
        "bench": "embedded",
        "commit": output_of("git", "rev-parse", "--short", "HEAD"),
        "device": f"{platform.machine()} CPU, {len(os.sched_getaffinity(0))} cores",
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "grpcio")},
        "command": "python -m tests.bench.embedded " + " ".join(sys.argv[1:]),
        "acceptance": [asdict(row) for row in rows],
        "speed": [asdict(row) for row in speeds],
    }
    if save:
        Path(save).write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document))


def output_of(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY).stdout.strip()


def note(line: str) -> None:
    """Progress, apart from the report."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
