"""The few shapes of PromQL that the panels use."""

CLUSTER = 'cluster=~"$cluster"'
NAMESPACE = f'{CLUSTER},namespace=~"$namespace"'
MODEL = f'{NAMESPACE},model_name=~"$model"'
SELECT = f'{MODEL},pair=~"$pair"'
BY = "cluster, namespace, model_name"
NAMED = "{{cluster}} {{namespace}} {{model_name}}"
PAIR = "cluster, namespace, pair"


def rate(metric: str, select: str = SELECT, by: str = BY) -> str:
    """The summed rate of a counter."""
    return f"sum by ({by}) (rate({metric}{{{select}}}[$__rate_interval]))"


def quantile(q: float, metric: str, select: str = SELECT, by: str = BY) -> str:
    """A quantile of a histogram."""
    inner = f"sum by ({by}, le) (rate({metric}_bucket{{{select}}}[$__rate_interval]))"
    return f"histogram_quantile({q}, {inner})"


def mean(metric: str, select: str = SELECT, by: str = BY) -> str:
    """The mean of a histogram."""
    total = f"sum by ({by}) (rate({metric}_sum{{{select}}}[$__rate_interval]))"
    count = f"sum by ({by}) (rate({metric}_count{{{select}}}[$__rate_interval]))"
    return f"{total} / ({count} > 0)"


def share(part: str, whole: str) -> str:
    """A part of a whole that two counters tell: beside the start of a process their rates are stretched unlike."""
    return f"clamp_max({part} / ({whole} > 0), 1)"


def grown(metric: str, select: str = SELECT, by: str = BY) -> str:
    """By how many a counter grew within a step, a whole number: a restart is no fall."""
    return f"round(sum by ({by}) (increase({metric}{{{select}}}[$__rate_interval])))"


def buckets(metric: str, select: str = SELECT) -> str:
    """What a heatmap draws of a histogram."""
    return f"sum by (le) (increase({metric}_bucket{{{select}}}[$__rate_interval]))"
