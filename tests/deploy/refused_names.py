"""Variables that nobody reads and texts that are no objects, as the chart's templates refuse them."""

from typing import Any

NAMED: list[tuple[dict[str, Any], str, str]] = [
    ({"workers": {"env": {"HOME": "/x"}}}, "/workers/env", "another variable"),
    ({"workers": {"env": {"A": "1"}, "extraEnv": [{"name": "A"}]}}, "/workers/extraEnv", "in one of them"),
    ({"workers": {"env": {"PACELINE_SLOTS": 8}}}, "/workers/env", "passes --slots"),
    *(
        ({pods: {kind: value}}, f"/{pods}/env", "PACELINE_LOG_LEVL is no setting")
        for pods in ("gateway", "workers")
        for kind, value in (("env", {"PACELINE_LOG_LEVL": "x"}), ("extraEnv", [{"name": "PACELINE_LOG_LEVL"}]))
    ),
    ({"workers": {"env": {"PACELINE_TARGET__WIDHTS": "1"}}}, "/workers/env", "is no setting of the controller"),
    ({"gateway": {"env": {"PACELINE_": 1}}}, "/gateway/env", "is no setting of the gateway"),
    (
        {"models": [{"id": "a", "name": "small", "path": "/models/small", "workers": {"env": {"PACELINE_SLOT": 8}}}]},
        "/models/0/workers/env",
        "is no setting of the controller",
    ),
    ({"extraObjects": ["hello"]}, "/extraObjects/0", "apiVersion, kind and metadata"),
    ({"extraObjects": ["# only a remark", "kind: ConfigMap"]}, "/extraObjects/1", "apiVersion, kind and metadata"),
    ({"extraObjects": ["- a\n- b"]}, "/extraObjects/0", "apiVersion, kind and metadata"),
    (
        {"extraObjects": ["apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\nnonsense"]},
        "/extraObjects/0",
        "apiVersion, kind and metadata",
    ),
]
