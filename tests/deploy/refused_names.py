"""Variables that nobody reads, texts that are no objects or images, parts of pods that are the chart's or nobody's."""

from typing import Any

PODS: list[tuple[str, Any]] = [
    (f"{pods}.{name}", value)
    for pods in ("gateway", "workers")
    for name, value in (
        ("podSpec", {"nodeSelector": {}}),
        ("podSpec", {"schedulername": "volcano"}),
        ("podSpec", {"terminationGracePeriodSeconds": 5}),
        ("deploymentSpec", {"replicas": 3}),
        ("deploymentSpec", {"strategy": {"type": "BlueGreen"}}),
        ("deploymentSpec", {"strategy": {"rollingUpdate": {"maxSurge": "many"}}}),
        ("extraContainers", [{"name": "proxy"}]),
        ("extraContainers", [{"name": "proxy", "image": "i", "arguments": ["a"]}]),
        ("extraInitContainers", [{"name": "Proxy", "image": "i"}]),
    )
]
"""Refused by the schema."""

REGISTRIES: list[tuple[str, Any]] = [
    ("image.repository", 3),
    ("image.repository", "https://registry.example/paceline"),
    ("image.repository", "registry.example:5000/paceline/"),
    ("image.repository", "registry.example/Paceline"),
    ("image.repository", "registry.example/paceline:1"),
]
"""Refused by the schema, too."""


def model(identity: str, **more: Any) -> dict[str, Any]:
    return {"id": identity, "name": "small", "path": "/models/small", **more}


NAMED: list[tuple[dict[str, Any], str, str]] = [
    (
        {
            "workers": {
                "mode": "raycluster",
                "raycluster": {"tokenSecretName": "ray"},
                "deploymentSpec": {"minReadySeconds": 5},
            }
        },
        "/workers/deploymentSpec",
        "want mode deployment",
    ),
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
    ({"workers": {"extraContainers": [{"name": "worker", "image": "i"}]}}, "/workers/extraContainers", "another name"),
    (
        {"gateway": {each: [{"name": "proxy", "image": "i"}] for each in ("extraContainers", "extraInitContainers")}},
        "/gateway/extraInitContainers",
        "another name",
    ),
    ({"models": [{**model("a"), "path": "/models/x,y"}]}, "/models/0/path", "a folder without one"),
    ({"models": [model("a")], "model": {"path": "/models/x,y"}}, "/model/path", "a folder without one"),
    *(
        ({"models": models, "metrics": {"serviceMonitor": {"enabled": True}}}, f"/models/{at}/id", "another id")
        for at, models in enumerate(([model("metrics")], [model("a"), model("a-metrics", name="b")]))
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
