"""python -m tests.bench.served_tau: tokens a round of SmolLM2 with its drafter, through a whole cluster here.

Prompts are the held-out ones, by kind. Rounds have a fixed width, and each text is also written without drafts and must
be the same. `cut` counts answers up to where they first repeat themselves. With `--speeds` the policy chooses the width
in a second cluster, and both are timed against plain decoding in turn. By the clock that needs a machine with nothing
else to do; what target, drafter and gateway compute for an answer is told beside it, and hardly follows other load.
With `--replay` the rounds of all answers are replayed offline in the same numerics, with the noise of the same draws.
"""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import torch

from deploy.shipped import SMOLLM2, SMOLLM2_DRAFTER, shipped_pair
from deploy.stack import Stack, StackSettings
from models.training.foreign.conversation import read_format
from models.training.foreign.heldout import Prompt, read_prompts
from models.training.foreign.loops import first_repeats
from paceline import Answer, Client, Message, Options
from services.common.model.files.checkpoint import resolve_folder
from services.common.request.sampling import SamplingParams
from services.drafter.proposers.build import in_int8
from services.drafter.settings import DrafterSettings
from tests.bench.nodes_offline import Text as Written
from tests.bench.served_replay import ServedReplay
from tests.bench.stack_cpu import cpu_s, serving

TEMPERATURES = (0.0, 0.8)
ALL = "all"


@dataclass(frozen=True)
class Text:
    """One answer with drafts, and whether plain decoding wrote the same; rounds and drafts before it repeats itself."""

    kind: str
    prompt: str
    temperature: float
    answer: Answer
    same: bool
    plain_tok_s: float
    computed_s: tuple[float, float]
    """Seconds that the stack computed behind the first tokens, plain and drafted; of one request at a time alone."""
    cut_rounds: int
    cut_accepted: int

    @property
    def ratio(self) -> float:
        """Speed with drafts over speed without."""
        return self.answer.decode_tok_s / self.plain_tok_s if self.plain_tok_s else 1.0


def main() -> int:
    """Serves, asks and prints a table and a line of JSON; 0 when every text was the same without drafts."""
    chosen = _arguments()
    prompts = read_prompts(chosen.prompts)[:: chosen.every]
    fixed = ["--adaptive", "false", "--target.widths", f"1,{chosen.width}"]
    texts = _serve(prompts, fixed, chosen)
    _print_tau(texts)
    report: dict[str, object] = {"width": chosen.width, "tau": _taus(texts), **_agreement(texts)}
    if chosen.speeds:
        adaptive = _serve(prompts, [], chosen)
        report |= {"fixed": _ratios(texts), "adaptive": _ratios(adaptive)}
        report |= {"fixed_cpu": _cpu_ratios(texts), "adaptive_cpu": _cpu_ratios(adaptive)}
        texts = [*texts, *adaptive]
        report |= _agreement(texts)
    if chosen.replay:
        report["replay"] = _replayed(texts, chosen)
    print(json.dumps(report))
    return 0 if all(text.same for text in texts) else 1


def _serve(prompts: Sequence[Prompt], flags: Sequence[str], chosen: argparse.Namespace) -> list[Text]:
    pair = shipped_pair(SMOLLM2)
    assert pair is not None
    settings = StackSettings(
        model=pair.model, drafter=chosen.drafter, proposer="dflash", model_name=pair.name, ready_s=1200.0,
        cluster_flags=[*flags, *chosen.cluster],
    )  # fmt: skip
    with Stack(settings, lambda text: print(text, file=sys.stderr)) as stack, Client(stack.gateway_address) as client:
        work = [(prompt, temperature) for temperature in chosen.temperatures for prompt in prompts]
        # One at a time where speeds are read.
        with ThreadPoolExecutor(1 if chosen.speeds else 4) as pool:
            pids = serving(os.getpid())
            return list(pool.map(lambda one: _ask(client, one[0], one[1], chosen.tokens, pids), work))


def _ask(client: Client, prompt: Prompt, temperature: float, tokens: int, pids: list[int]) -> Text:
    said = [Message("user", prompt.prompt)]
    options = Options(max_tokens=tokens, temperature=temperature, seed=7)
    drafted, pieces, drafted_s = _decoded(client, said, options, pids)
    plain, _, plain_s = _decoded(client, said, replace(options, speculation=False), pids)
    answer, computed = drafted, (plain_s, drafted_s)
    rounds, accepted = _before_repeat(answer, pieces)
    same = answer.tokens == plain.tokens
    return Text(prompt.kind, prompt.prompt, temperature, answer, same, plain.decode_tok_s, computed, rounds, accepted)


def _decoded(
    client: Client, said: Sequence[Message], options: Options, pids: list[int]
) -> tuple[Answer, list[tuple[int, int]], float]:
    """An answer, tokens and accepted drafts of its pieces, and what the stack computed behind the first of them."""
    stream, pieces, begun = client.stream(said, options), [], 0.0
    for piece in stream:
        begun = begun or cpu_s(pids)
        pieces.append((len(piece.tokens), piece.accepted))
    return stream.answer, pieces, cpu_s(pids) - begun


def _before_repeat(answer: Answer, pieces: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Rounds and accepted drafts of the pieces that begin before the answer repeats itself."""
    count = len(answer.tokens)
    ids, zero = torch.tensor([answer.tokens or [0]]), torch.tensor([0])
    end = int(first_repeats(ids, zero, torch.tensor([count])))
    pieces = list(pieces)[1:]
    begins = accumulate((size for size, _ in pieces), initial=answer.first_tokens)
    kept = [piece for piece, begin in zip(pieces, begins, strict=False) if begin < end]
    accepted = sum(drafts for _, drafts in kept)
    # Of the tokens of a round all but one are accepted drafts.
    return sum(size for size, _ in kept) - accepted, accepted


def _replayed(texts: Sequence[Text], chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Rounds as served and as replayed, by temperature; `ratio` is tau as served over tau offline."""
    folder = resolve_folder(SMOLLM2)
    prompts = read_format(folder).prompts([text.prompt for text in texts])
    replay = ServedReplay(folder, Path(chosen.drafter), in_int8(DrafterSettings(proposer="none")))
    found: dict[str, dict[str, float]] = {}
    for text, prompt in zip(texts, prompts, strict=True):
        assert len(prompt) == text.answer.prompt_tokens, "the prompt was served with other tokens"
        sampling = SamplingParams(temperature=text.temperature, seed=text.answer.seed)
        written = Written([*prompt, *text.answer.tokens], len(prompt), sampling)
        sums = found.setdefault(str(text.temperature), {"served": 0, "offline": 0})
        sums["served"] += text.answer.rounds
        sums["offline"] += replay.rounds(written, chosen.width - 1)
    for temperature, sums in found.items():
        sums["ratio"] = round(sums["offline"] / sums["served"], 4)
        print(f"T = {temperature}: {sums['served']} rounds served, {sums['offline']} offline, ratio {sums['ratio']}")
    return found


def _groups(texts: Iterable[Text]) -> dict[tuple[float, str], list[Text]]:
    groups: dict[tuple[float, str], list[Text]] = defaultdict(list)
    for text in texts:
        groups[text.temperature, text.kind].append(text)
        groups[text.temperature, ALL].append(text)
    return groups


def _tau(texts: Sequence[Text], cut: bool) -> float:
    rounds = sum(text.cut_rounds if cut else text.answer.rounds for text in texts)
    accepted = sum(text.cut_accepted if cut else text.answer.accepted for text in texts)
    return (rounds + accepted) / rounds if rounds else 0.0


def _taus(texts: Sequence[Text]) -> list[dict[str, object]]:
    return [
        {
            "temperature": temperature, "kind": kind, "answers": len(group),
            "tau": round(_tau(group, False), 3), "cut": round(_tau(group, True), 3),
        }
        for (temperature, kind), group in sorted(_groups(texts).items())
    ]  # fmt: skip


def _print_tau(texts: Sequence[Text]) -> None:
    print(f"{'T':>4} {'kind':<10} {'answers':>7} {'tau':>6} {'cut':>6}")
    for line in _taus(texts):
        print(f"{line['temperature']:>4} {line['kind']:<10} {line['answers']:>7} {line['tau']:>6} {line['cut']:>6}")


def _agreement(texts: Sequence[Text]) -> dict[str, int]:
    return {"texts": len(texts), "differ": sum(not text.same for text in texts)}


def _ratios(texts: Sequence[Text]) -> dict[str, float]:
    """Medians of speed with drafts over speed without, by temperature."""
    return {
        str(temperature): round(statistics.median(text.ratio for text in group), 3)
        for (temperature, kind), group in sorted(_groups(texts).items())
        if kind == ALL
    }


def _cpu_ratios(texts: Sequence[Text]) -> dict[str, float]:
    """What was computed for all plain answers over that for the same with drafts, by temperature."""
    sums = {
        temperature: [sum(text.computed_s[which] for text in group) for which in (0, 1)]
        for (temperature, kind), group in sorted(_groups(texts).items())
        if kind == ALL
    }
    return {str(heat): round(plain_s / max(drafted_s, 1e-3), 3) for heat, (plain_s, drafted_s) in sums.items()}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.served_tau", description=__doc__)
    add = parser.add_argument
    add("--drafter", default=str(SMOLLM2_DRAFTER), help="folder of the drafter; default: %(default)s")
    add("--prompts", type=Path, default=SMOLLM2_DRAFTER / "heldout_prompts.json", help="prompts by kind")
    add("--every", type=int, default=1, help="take each n-th prompt; default: %(default)s")
    add("--width", type=int, default=8, help="rows of a round; default: %(default)s")
    add("--tokens", type=int, default=256, help="most tokens of an answer; default: %(default)s")
    add("--temperatures", type=float, nargs="+", default=TEMPERATURES, help="default: 0 and 0.8")
    add("--speeds", action="store_true", help="time fixed and adaptive widths against plain decoding")
    add("--replay", action="store_true", help="replay the rounds of the answers offline")
    add("--cluster", nargs="*", default=[], help="further flags of the cluster")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
