"""The speculation dashboard."""

from deploy.grafana.panels import Board, Panel
from deploy.grafana.promql import SELECT, mean, rate

ACCEPTED = rate("paceline_spec_decode_num_accepted_tokens_total")
DRAFTS = rate("paceline_spec_decode_num_drafts_total")
ACCEPTED_AT = rate("paceline_spec_decode_num_accepted_tokens_per_pos_total", by="position")
DRAFTED = rate("paceline_spec_decode_num_draft_tokens_total")

SPECULATION = Board(
    "paceline-speculation",
    "paceline / Speculation",
    "Does speculation pay, and where does a round's time go?",
    (
        Panel(
            "Tokens per round (tau)",
            "short",
            "1 + accepted drafts / drafts verified.",
            ((f"1 + {ACCEPTED} / ({DRAFTS} > 0)", "{{model_name}}"),),
            "acceptance-collapse",
            True,
        ),
        Panel(
            "Acceptance rate",
            "percentunit",
            "Share of draft tokens that were accepted.",
            ((f"{ACCEPTED} / ({DRAFTED} > 0)", "{{model_name}}"),),
            "acceptance-collapse",
            True,
        ),
        Panel(
            "Acceptance by position",
            "percentunit",
            "Share of drafts accepted up to each position.",
            (
                (
                    f"{ACCEPTED_AT} / on () group_left () (sum ({DRAFTS}) > 0)",
                    "{{position}}",
                ),
            ),
        ),
        Panel(
            "Rounds by width",
            "short",
            "Rounds per second; width 1 is plain.",
            ((rate("paceline_rounds_total", by="width"), "W={{width}}"),),
        ),
        Panel(
            "Where a round's time goes",
            "s",
            "Means: verify, waiting for drafts, host.",
            (
                (mean("paceline_verify_seconds"), "verify"),
                (mean("paceline_draft_wait_seconds"), "wait for drafts"),
                (mean("paceline_host_seconds"), "host"),
            ),
        ),
        Panel(
            "Draft and hand-off",
            "s",
            "Means: one draft forward; the rest from asking to taking it, the host's work meanwhile included.",
            (
                (mean("paceline_draft_seconds"), "drafter"),
                (mean("paceline_handoff_seconds"), "hand-off"),
            ),
        ),
        Panel(
            "Wasted draft tokens",
            "short",
            "Draft tokens per second that were verified and refused.",
            ((f"{DRAFTED} - {ACCEPTED}", "{{model_name}}"),),
        ),
        Panel(
            "Estimated speed-up",
            "short",
            "Tokens per round over the time of a round relative to its verify alone.",
            (
                (
                    f"(1 + {ACCEPTED} / ({DRAFTS} > 0)) * ({mean('paceline_verify_seconds')}) / "
                    f"({mean('paceline_round_seconds')})",
                    "{{model_name}}",
                ),
            ),
        ),
        Panel(
            "Fallback rounds",
            "short",
            "Rounds that wanted drafts and had none, by reason.",
            ((rate("paceline_fallback_rounds_total", by="reason"), "{{reason}}"),),
            "pair-degraded",
        ),
        Panel(
            "Hand-off mode",
            "short",
            "1 for the mode in use.",
            ((f"paceline_handoff_mode{{{SELECT}}} == 1", "{{pair}} {{mode}}"),),
            "host-fallback",
        ),
    ),
)
