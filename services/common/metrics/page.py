"""Writes docs/metrics.md from the catalogue: `python -m services.common.metrics.page > docs/metrics.md`."""

import sys
from collections.abc import Iterable
from typing import Any

from services.common.metrics.catalogue import SETS, every_metric
from services.common.metrics.declare import COMMON_LABELS, Declared

LABELS = " and ".join(f"`{label}`" for label in COMMON_LABELS)

HEAD = f"""# Metrics

Made from `services/common/metrics/catalogue.py` by `python -m services.common.metrics.page`; edit the catalogue, not
this page. Names are never renamed. Every metric carries the labels {LABELS}; no label
holds anything a client chooses, so the number of series is bounded. Times are in seconds. `tenant` is a name of the
tenants file: of those that `metrics_tenants` names, or else of the first hundred; every other one is `other`, a call
without a known key `unknown`, and where nobody needs a key all are `anybody`; a tenant with one of these names is told
as `tenant other` and the like. `model_name` is `unknown` until a gateway has met a target. Of several models each has
its own series; what belongs to none of them, such as a gateway's connections and calls whose model does not exist, then
has the name `several`. `/metrics/vllm` beside `/metrics` has those
that vLLM has too under its names, such as `vllm:num_requests_waiting`, with the pair as `engine`.

Two laws hold at every scrape of an idle system: `committed_tokens = emitted_tokens + discarded_tokens` (I10), and the
`spec_decode_num_*` counters equal the sums of what `Final.speculation` told clients.
"""

LIBRARY = """Beside these every service has the `process_`, `python_info` and `python_gc_` series of the Prometheus
client, under its names and without our labels.
"""


def scraped_name(spec: Declared[Any]) -> str:
    """The name to query: counters end in _total, histograms have _bucket, _sum and _count."""
    return f"{spec.full_name}_total" if spec.kind == "counter" else spec.full_name


def table(specs: Iterable[Declared[Any]]) -> str:
    """One row for each metric."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    rows += [f"| `{scraped_name(s)}` | {s.kind} | {labels(s)} | {meaning(s)} |" for s in specs]
    return "\n".join(rows)


def labels(spec: Declared[Any]) -> str:
    """The labels beside those of every metric."""
    return ", ".join(f"`{label}`" for label in spec.labels)


def meaning(spec: Declared[Any]) -> str:
    """What it counts, and the values of its label that are there from the start."""
    values = list(dict.fromkeys(str(value[-1] if isinstance(value, tuple) else value) for value in spec.values))
    return " ".join([spec.meaning, *([f"From the start: {', '.join(values)}."] if values else [])])


def buckets(specs: Iterable[Declared[Any]]) -> str:
    """The bounds of histograms, those with equal bounds together."""
    by_bounds: dict[tuple[float, ...], list[str]] = {}
    for spec in specs:
        if spec.kind == "histogram":
            by_bounds.setdefault(spec.buckets, []).append(spec.name)
    rows = [
        f"| {', '.join(f'`{name}`' for name in names)} | {', '.join(f'{bound:g}' for bound in bounds)} |"
        for bounds, names in by_bounds.items()
    ]
    return "\n".join(["| histograms | bounds, seconds or tokens |", "|---|---|", *rows])


def page() -> str:
    """docs/metrics.md, as Markdown."""
    parts = [HEAD]
    parts += [f"## {title}\n\n{table(each.declared())}\n" for title, each in SETS.items()]
    parts.append(LIBRARY)
    parts.append(f"## Bounds of histograms\n\n{buckets(every_metric())}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(page())
