"""The speculation dashboard."""

from deploy.grafana.panels import OK, Board, Panel
from deploy.grafana.promql import NAMED, PAIR, SELECT, buckets, mean, quantile, rate, share

ACCEPTED = rate("paceline_spec_decode_num_accepted_tokens_total")
DRAFTS = rate("paceline_spec_decode_num_drafts_total")
PAIR_ACCEPTED = rate("paceline_spec_decode_num_accepted_tokens_total", by=PAIR)
PAIR_DRAFTS = rate("paceline_spec_decode_num_drafts_total", by=PAIR)
PAIR_DRAFTED = rate("paceline_spec_decode_num_draft_tokens_total", by=PAIR)
ACCEPTED_AT = rate("paceline_spec_decode_num_accepted_tokens_per_pos_total", by="position")
DRAFTED = rate("paceline_spec_decode_num_draft_tokens_total")

SPENT, PLAIN = "paceline_speculative_seconds_total", "paceline_plain_equivalent_seconds_total"

SPECULATION = Board(
    "paceline-speculation",
    "paceline / Speculation",
    "Does speculation pay, and where does a round's time go?",
    (
        Panel(
            "Tokens per round (tau)",
            "short",
            "1 + accepted drafts / drafts verified.",
            ((f"1 + {ACCEPTED} / ({DRAFTS} > 0)", NAMED),),
            "acceptance-collapse",
            True,
        ),
        Panel(
            "Acceptance rate",
            "percentunit",
            "Share of draft tokens that were accepted.",
            ((share(ACCEPTED, DRAFTED), NAMED),),
            "acceptance-collapse",
            True,
        ),
        Panel(
            "Tokens per round by pair",
            "short",
            "1 + accepted drafts / drafts verified: a pair far below the others has a bad drafter.",
            ((f"1 + {PAIR_ACCEPTED} / ({PAIR_DRAFTS} > 0)", "{{pair}}"),),
            "acceptance-collapse",
            least=1,
        ),
        Panel(
            "Acceptance by pair",
            "percentunit",
            "Share of draft tokens that were accepted.",
            ((share(PAIR_ACCEPTED, PAIR_DRAFTED), "{{pair}}"),),
            "acceptance-collapse",
        ),
        Panel(
            "Acceptance by position",
            "percentunit",
            "Share of drafts accepted up to each position.",
            (
                (
                    f"clamp_max({ACCEPTED_AT} / on () group_left () (sum ({DRAFTS}) > 0), 1)",
                    "position {{position}}",
                ),
            ),
        ),
        Panel(
            "Rounds by width",
            "short",
            "Rounds within a step by width; width 1 is plain. The darker, the more.",
            ((f"sum by (width) (increase(paceline_rounds_total{{{SELECT}}}[$__rate_interval]))", "{{width}}"),),
            heatmap=True,
        ),
        Panel(
            "Width of the latest round",
            "short",
            "What each pair chose last; 1 is plain.",
            ((f"max by ({PAIR}) (paceline_adaptive_width{{{SELECT}}})", "{{pair}}"),),
            least=1,
        ),
        Panel(
            "Rounds by time",
            "s",
            "How many rounds took how long.",
            ((buckets("paceline_round_seconds"), "{{le}}"),),
            heatmap=True,
        ),
        Panel(
            "Verify and wait for drafts",
            "s",
            "Quantiles of a round's parts.",
            (
                (quantile(0.5, "paceline_verify_seconds"), "{{model_name}} verify p50"),
                (quantile(0.95, "paceline_verify_seconds"), "{{model_name}} verify p95"),
                (quantile(0.5, "paceline_draft_wait_seconds"), "{{model_name}} wait p50"),
                (quantile(0.95, "paceline_draft_wait_seconds"), "{{model_name}} wait p95"),
            ),
        ),
        Panel(
            "Where a round's time goes",
            "s",
            "Means: verify, waiting for drafts, host.",
            (
                (mean("paceline_verify_seconds"), "{{model_name}} verify"),
                (mean("paceline_draft_wait_seconds"), "{{model_name}} wait for drafts"),
                (mean("paceline_host_seconds"), "{{model_name}} host"),
            ),
        ),
        Panel(
            "Draft and hand-off",
            "s",
            "Means: one draft forward; the rest from asking to taking it, the host's work meanwhile included.",
            (
                (mean("paceline_draft_seconds"), "{{model_name}} drafter"),
                (mean("paceline_handoff_seconds"), "{{model_name}} hand-off"),
            ),
        ),
        Panel(
            "Wasted draft tokens",
            "tps",
            "Draft tokens per second that were verified and refused.",
            ((f"{DRAFTED} - {ACCEPTED}", NAMED),),
        ),
        Panel(
            "Speed-up over plain",
            "short",
            "Time of served plain rounds of the same bucket for as many tokens, over that of rounds; below 1: a loss.",
            (
                (f"{rate(PLAIN, by=PAIR)} / ({rate(SPENT, by=PAIR)} > 0)", "{{pair}}"),
                (f"{rate(PLAIN)} / ({rate(SPENT)} > 0)", f"all of {NAMED}"),
            ),
            "speculation-loses",
            steps=((1, OK),),
        ),
        Panel(
            "Fallback rounds",
            "ops",
            "Rounds per second that wanted drafts and had none, by reason.",
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
        Panel(
            "Accepted rows of trees",
            "tps",
            "Draft tokens accepted from trees per second by row of the tree; row 1 is the likeliest.",
            ((rate("paceline_accepted_nodes_total", by="row"), "{{row}}"),),
        ),
        Panel(
            "Accepted children of trees",
            "tps",
            "Draft tokens accepted from trees per second by place among their parent's children, from 1 on.",
            ((rate("paceline_accepted_children_total", by="child"), "{{child}}"),),
        ),
        Panel(
            "Rounds of trees",
            "ops",
            "Rounds per second whose drafts were trees, by their nodes.",
            ((rate("paceline_tree_rounds_total", by="width"), "{{width}} nodes"),),
        ),
    ),
)
