"""python -m deploy.demo: the whole of paceline on this machine, once with speculation and once without.

The last line of output is one JSON object.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.stack import EMBEDDED, REPOSITORY, Stack, StackError, StackSettings, describe_target
from deploy.up import print_progress
from paceline import Answer, Client, Options
from services.common.pb.paceline.v1 import target_pb2

ALTERNATIONS = 5
HYBRID = REPOSITORY / "models" / "embedded-hybrid"


@dataclass(frozen=True)
class Comparison:
    """One prompt, generated with speculation and without, several times in turn."""

    prompt: str
    tokens: int
    tau: float
    plain_tok_s: float
    spec_tok_s: float
    identical: bool

    @property
    def ratio(self) -> float:
        """Speculative over plain speed."""
        return self.spec_tok_s / self.plain_tok_s


def main() -> int:
    """Runs the demo; 0 when every text was the same with speculation and without."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--prompts", default="", help="file with one prompt per line; default: held-out prompts")
    parser.add_argument(
        "--hybrid", action="store_true", help="serve the pair whose target is a hybrid of recurrent layers"
    )
    parser.add_argument("--max-tokens", type=int, default=128, help="tokens of each answer; default: %(default)s")
    parser.add_argument(
        "--setup-s", type=float, default=0.0, help="seconds that the set-up took, for the report; default: %(default)s"
    )
    chosen = parser.parse_args()
    prompts = read_prompts(chosen.prompts)
    started = time.monotonic()
    try:
        with (
            Stack(pair_settings(chosen.hybrid), progress=print_progress) as stack,
            Client(stack.gateway_address) as client,
        ):
            target = describe_target(stack.pairs()[0].target_address)
            print_progress(
                f"GPU sharing: {target.gpu_sharing}; hand-off between target and drafter: {target.handoff_mode}"
            )
            show_text(client, prompts[0], chosen.max_tokens)
            greedy, sampled = run(client, prompts, chosen.max_tokens)
            print_progress("stopping everything")
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    report(greedy, sampled, target, chosen.setup_s, time.monotonic() - started)
    return 0 if all(c.identical for c in [*greedy, *sampled]) else 1


def pair_settings(hybrid: bool) -> StackSettings:
    """The embedded pair, or the embedded hybrid pair."""
    if not hybrid:
        return StackSettings()
    return StackSettings(
        model=str(HYBRID / "target"), drafter=str(HYBRID / "drafter"), model_name="paceline-embedded-hybrid"
    )


def read_prompts(path: str, count: int = 4) -> list[str]:
    """Lines of the file, or the first held-out prompts of the embedded pair."""
    if path:
        return [line for line in Path(path).read_text().splitlines() if line.strip()]
    held_out = json.loads((EMBEDDED / "heldout_prompts.json").read_text())
    return [entry["prompt"] if isinstance(entry, dict) else entry for entry in held_out][:count]


def show_text(client: Client, prompt: str, max_tokens: int) -> None:
    """Streams the first prompt as a user would see it; it also warms the processes up."""
    print_progress("a first answer, streamed")
    print("-" * 80)
    print(prompt, end="", flush=True)
    for piece in client.stream(prompt, Options(max_tokens=max_tokens, ignore_eos=True)):
        print(piece.text, end="", flush=True)
    print("\n" + "-" * 80)


def run(client: Client, prompts: Sequence[str], max_tokens: int) -> tuple[list[Comparison], list[Comparison]]:
    """Every prompt greedily, and every prompt at temperature 0.8."""
    print_progress("speculation on and off in turn, greedy")
    greedy = [compare(client, prompt, max_tokens, 0.0) for prompt in prompts]
    print_progress("speculation on and off in turn, temperature 0.8")
    sampled = [compare(client, prompt, max_tokens, 0.8) for prompt in prompts]
    return greedy, sampled


def compare(client: Client, prompt: str, max_tokens: int, temperature: float) -> Comparison:
    """Alternates speculation on and off on one prompt; speeds are medians."""
    spec: list[Answer] = []
    plain: list[Answer] = []
    for _ in range(ALTERNATIONS):
        for results, on in ((spec, True), (plain, False)):
            options = Options(max_tokens=max_tokens, temperature=temperature, seed=7, speculation=on, ignore_eos=True)
            results.append(client.generate(prompt, options))
    first = spec[0]
    return Comparison(
        prompt=prompt,
        tokens=len(first.tokens),
        tau=first.tau,
        plain_tok_s=statistics.median(r.decode_tok_s for r in plain),
        spec_tok_s=statistics.median(r.decode_tok_s for r in spec),
        identical=all((r.tokens, r.text) == (first.tokens, first.text) for r in [*spec, *plain]),
    )


def report(
    greedy: Sequence[Comparison],
    sampled: Sequence[Comparison],
    target: target_pb2.TargetServiceDescribeResponse,
    setup_s: float,
    run_s: float,
) -> None:
    """Prints the table and the JSON line; `target` is what the target tells of itself."""
    print(f"{'prompt':<34} {'T':>4} {'tokens':>6} {'tau':>5} {'plain tok/s':>12} {'spec tok/s':>11} {'ratio':>6}")
    for temperature, comparisons in ((0.0, greedy), (0.8, sampled)):
        for c in comparisons:
            name = " ".join(c.prompt.split())[:33]
            print(
                f"{name:<34} {temperature:>4} {c.tokens:>6} {c.tau:>5.2f} {c.plain_tok_s:>12.0f} "
                f"{c.spec_tok_s:>11.0f} {c.ratio:>6.2f}"
            )
    ratios = [c.ratio for c in greedy]
    print(
        json.dumps(
            {
                "demo": "ok" if all(c.identical for c in [*greedy, *sampled]) else "texts differ",
                "gpu_sharing": target.gpu_sharing,
                "handoff": target.handoff_mode,
                "setup_s": round(setup_s, 1),
                "run_s": round(run_s, 1),
                "tokens": sum(c.tokens for c in [*greedy, *sampled]) * 2 * ALTERNATIONS,
                "tau": round(statistics.mean(c.tau for c in greedy), 3),
                "tau_sampled": round(statistics.mean(c.tau for c in sampled), 3),
                "plain_tok_s": round(statistics.median(c.plain_tok_s for c in greedy), 1),
                "spec_tok_s": round(statistics.median(c.spec_tok_s for c in greedy), 1),
                "ratio": round(statistics.median(ratios), 3),
                "ratio_min": round(min(ratios), 3),
                "ratio_max": round(max(ratios), 3),
                "ratio_sampled": round(statistics.median(c.ratio for c in sampled), 3),
                "identical": all(c.identical for c in [*greedy, *sampled]),
            }
        )
    )


if __name__ == "__main__":
    raise SystemExit(main())
