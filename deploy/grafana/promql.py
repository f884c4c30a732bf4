"""The few shapes of PromQL that the panels use."""

SELECT = 'model_name=~"$model",pair=~"$pair"'
MODEL = 'model_name=~"$model"'


def rate(metric: str, select: str = SELECT, by: str = "model_name") -> str:
    """The summed rate of a counter."""
    return f"sum by ({by}) (rate({metric}{{{select}}}[$__rate_interval]))"


def quantile(q: float, metric: str, select: str = SELECT, by: str = "model_name") -> str:
    """A quantile of a histogram."""
    inner = f"sum by ({by}, le) (rate({metric}_bucket{{{select}}}[$__rate_interval]))"
    return f"histogram_quantile({q}, {inner})"


def mean(metric: str, select: str = SELECT, by: str = "model_name") -> str:
    """The mean of a histogram."""
    total = f"sum by ({by}) (rate({metric}_sum{{{select}}}[$__rate_interval]))"
    count = f"sum by ({by}) (rate({metric}_count{{{select}}}[$__rate_interval]))"
    return f"{total} / ({count} > 0)"
