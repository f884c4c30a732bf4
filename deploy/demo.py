"""python -m deploy.demo: the whole of paceline on this machine, once with speculation and once without."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.checkpoints import resolved
from deploy.shipped import SMOLLM2, ShippedPair, shipped_pair, usual_pair
from deploy.stack import EMBEDDED, REPOSITORY, Stack, StackError, StackSettings, describe_target, judged
from deploy.starting import Screen
from deploy.up import DRAFTS
from paceline import Answer, Client, Message, Options, Prompt
from services.common.pb.paceline.v1 import target_pb2

ALTERNATIONS = 3
QUESTIONS = (
    "Explain in two sentences why leaves are green.",
    "What is the capital of France, and what is it known for?",
    "Write a Python function that returns the larger of two numbers.",
    "Give me three tips for a good night's sleep.",
)
"""What a model that answers is asked."""
NEXT = """What next: make up serves it until Ctrl-C and prints the address of a page; make chat talks to it.
Your model: make up MODEL=FOLDER, MODEL=file.gguf or a hub id, MODEL=owner/name; make doctor looks at the machine."""
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
        """Speculative over plain speed; 1 when an answer was too short to time."""
        return self.spec_tok_s / self.plain_tok_s if self.plain_tok_s and self.spec_tok_s else 1.0

    @property
    def why(self) -> str:
        """Why speculation was not faster; empty when it was. A round takes `tau / ratio` plain ones' time."""
        if self.ratio >= 1:
            return ""
        cost = self.tau / self.ratio
        return f"slower: a round gave {self.tau:.2f} tokens and took the time of {cost:.2f} plain ones"


@dataclass(frozen=True)
class Demo:
    """A pair and what it is asked: a model that answers gets questions, the embedded ones texts to go on with."""

    settings: StackSettings
    title: str
    prompts: Sequence[str]
    answers: bool

    def prompt(self, text: str) -> Prompt:
        """A text as the model wants it."""
        return [Message("user", text)] if self.answers else text


def main() -> int:
    """Runs the demo; 0 when every text was the same with speculation and without."""
    chosen, screen = arguments(), Screen()
    started = time.monotonic()
    try:
        demo = asked(chosen.hybrid, chosen.model, chosen.prompts)
        screen.step(f"{demo.title}, {DRAFTS[demo.settings.proposer]}")
        with (
            Stack(resolved(demo.settings, judged(demo.settings)), screen.step, waiting=screen.renew) as stack,
            Client(stack.gateway_address) as client,
        ):
            target = describe_target(stack.pairs()[0].target_address)
            screen.step(
                f"GPU sharing: {target.gpu_sharing}; hand-off between target and drafter: {target.handoff_mode}"
            )
            show_text(client, demo, chosen.max_tokens, screen)
            greedy, sampled = run(client, demo, chosen.max_tokens, screen)
            screen.step("stopping everything")
    except StackError as error:
        screen.clear()
        print(error, file=sys.stderr)
        return 1
    table(greedy, sampled)
    print("\n" + conclusion(greedy, sampled))
    print("\n" + NEXT)
    if chosen.json:
        print(figures(greedy, sampled, target, chosen.setup_s, time.monotonic() - started))
    return 0 if all(c.identical for c in [*greedy, *sampled]) else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--model", default="", help="smollm2 or embedded; default: smollm2 where it is installed")
    parser.add_argument("--prompts", default="", help="file with one prompt per line; default: four of the demo's own")
    parser.add_argument(
        "--hybrid", action="store_true", help="serve the pair whose target is a hybrid of recurrent layers"
    )
    parser.add_argument("--max-tokens", type=int, default=96, help="tokens of each answer; default: %(default)s")
    parser.add_argument(
        "--setup-s", type=float, default=0.0, help="seconds that the set-up took, for the report; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object in the end")
    return parser.parse_args()


def asked(hybrid: bool, model: str, prompts: str) -> Demo:
    """What the command line asks for.

    Raises:
        StackError: the model is none of those in the box.
    """
    pair = shipped_pair(model) if model else usual_pair()
    if pair is None:
        raise StackError(f"--model: {model} is not in the box, {SMOLLM2} and embedded are; make up serves any other")
    if hybrid or pair.model != SMOLLM2:
        title = "the embedded hybrid pair" if hybrid else pair.title
        return Demo(pair_settings(hybrid), title, read_prompts(prompts), answers=False)
    return Demo(_settings(pair), pair.title, read_prompts(prompts) if prompts else QUESTIONS, answers=True)


def _settings(pair: ShippedPair) -> StackSettings:
    proposer = "dflash" if pair.drafter else "ngram"
    return StackSettings(model=pair.model, drafter=pair.drafter, proposer=proposer, model_name=pair.name)


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


def show_text(client: Client, demo: Demo, max_tokens: int, screen: Screen) -> None:
    """Streams the first prompt as a user would see it; it also warms the processes up."""
    screen.step("a first answer, streamed")
    print("-" * 80)
    first = demo.prompts[0]
    print(f"> {first}\n" if demo.answers else first, end="", flush=True)
    for piece in client.stream(demo.prompt(first), Options(max_tokens=max_tokens, ignore_eos=not demo.answers)):
        print(piece.text, end="", flush=True)
    print("\n" + "-" * 80)


def run(client: Client, demo: Demo, max_tokens: int, screen: Screen) -> tuple[list[Comparison], list[Comparison]]:
    """Every prompt greedily, and every prompt at temperature 0.8."""
    screen.step("speculation on and off in turn, greedy")
    greedy = [compare(client, demo, text, max_tokens, 0.0) for text in demo.prompts]
    screen.step("speculation on and off in turn, temperature 0.8")
    return greedy, [compare(client, demo, text, max_tokens, 0.8) for text in demo.prompts]


def compare(client: Client, demo: Demo, text: str, max_tokens: int, temperature: float) -> Comparison:
    """Alternates speculation on and off on one prompt; speeds are medians."""
    spec: list[Answer] = []
    plain: list[Answer] = []
    for _ in range(ALTERNATIONS):
        for results, on in ((spec, True), (plain, False)):
            options = Options(
                max_tokens=max_tokens, temperature=temperature, seed=7, speculation=on, ignore_eos=not demo.answers
            )
            results.append(client.generate(demo.prompt(text), options))
    first = spec[0]
    return Comparison(
        prompt=text,
        tokens=len(first.tokens),
        tau=first.tau,
        plain_tok_s=statistics.median(r.decode_tok_s for r in plain),
        spec_tok_s=statistics.median(r.decode_tok_s for r in spec),
        identical=all((r.tokens, r.text) == (first.tokens, first.text) for r in [*spec, *plain]),
    )


def table(greedy: Sequence[Comparison], sampled: Sequence[Comparison]) -> None:
    """Prints a row for each prompt and temperature, and why one is slower."""
    print(f"{'prompt':<34} {'T':>4} {'tokens':>6} {'tau':>5} {'plain tok/s':>12} {'spec tok/s':>11} {'ratio':>6}")
    for temperature, comparisons in ((0.0, greedy), (0.8, sampled)):
        for c in comparisons:
            name = " ".join(c.prompt.split())[:33]
            row = (
                f"{name:<34} {temperature:>4} {c.tokens:>6} {c.tau:>5.2f} {c.plain_tok_s:>12.0f} "
                f"{c.spec_tok_s:>11.0f} {c.ratio:>6.2f}  {c.why}"
            )
            print(row.rstrip())


def conclusion(greedy: Sequence[Comparison], sampled: Sequence[Comparison]) -> str:
    """What was seen, in two sentences."""
    ran = [*greedy, *sampled]
    same, ratio = sum(c.identical for c in ran), statistics.median(c.ratio for c in ran)
    tau = statistics.mean(c.tau for c in ran)
    pace = f"{ratio:.2f} times as fast" if ratio >= 1 else f"slower, at {ratio:.2f} times the speed"
    return (
        f"With speculation the text was the same, token for token, in {same} of {len(ran)} answers, and here it came "
        f"{pace} in the middle ({min(c.ratio for c in ran):.2f} to {max(c.ratio for c in ran):.2f}).\n"
        f"One pass of the model gave {tau:.2f} tokens on average where plain decoding gives 1: that number is tau, and "
        f"it pays when it exceeds what drafting and checking cost on this machine."
    )


def figures(
    greedy: Sequence[Comparison],
    sampled: Sequence[Comparison],
    target: target_pb2.TargetServiceDescribeResponse,
    setup_s: float,
    run_s: float,
) -> str:
    """The figures as one JSON object; `target` is what the target tells of itself."""
    ratios = [c.ratio for c in greedy]
    return json.dumps(
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


if __name__ == "__main__":
    raise SystemExit(main())
