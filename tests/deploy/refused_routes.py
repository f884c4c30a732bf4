"""Ways into a release that the chart refuses together: (values, place that the sentence names, the way out)."""

from typing import Any

_PUBLIC = {"enabled": True, "parentRefs": [{"name": "public"}]}
_SECURE = {**_PUBLIC, "parentRefs": [{"name": "public", "sectionName": "https"}], "hostnames": ["llm.example.com"]}

ROUTES: list[tuple[dict[str, Any], str, str]] = [
    ({"gateway": {"httpPort": 9100}}, "/gateway/httpPort", "another port"),
    ({"gateway": {"httpPort": 50051}}, "/gateway/httpPort", "serves gRPC"),
    ({"gateway": {"grpcRoute": {"enabled": True}}}, "/gateway/grpcRoute/parentRefs", "the Gateway that takes"),
    (
        {"gateway": {"httpPort": 8000, "httpRoute": {"enabled": True}}},
        "/gateway/httpRoute/parentRefs",
        "the Gateway that takes",
    ),
    ({"gateway": {"httpRoute": _PUBLIC}}, "/gateway/httpPort", "such as 8000"),
    ({"gateway": {"ingress": {"enabled": True, "hosts": ["a.example"]}}}, "/gateway/httpPort", "such as 8000"),
    (
        {"gateway": {"httpPort": 8000, "grpcRoute": _PUBLIC, "httpRoute": _PUBLIC}},
        "/gateway/httpRoute/hostnames",
        "every host of the same listener",
    ),
    (
        {"gateway": {"httpPort": 8000, "grpcRoute": {**_PUBLIC, "hostnames": ["*.example.com"]}, "httpRoute": _SECURE}},
        "/gateway/httpRoute/hostnames",
        "another host name or sectionName",
    ),
    (
        {"gateway": {"grpcRoute": _PUBLIC, "routeCAConfigMapName": "ca"}},
        "/gateway/routeCAConfigMapName",
        "tls.secretName or tls.certManager.enabled",
    ),
    (
        {"gateway": {"routeCAConfigMapName": "ca"}, "tls": {"secretName": "tls"}},
        "/gateway/routeCAConfigMapName",
        "gateway.grpcRoute.enabled",
    ),
    ({"gateway": {"ingress": {"enabled": True, "backend": "grpc"}}}, "/gateway/ingress/hosts", "that clients ask for"),
    (
        {
            "gateway": {"grpcRoute": _PUBLIC, "routeCAConfigMapName": "ca"},
            "tls": {"secretName": "t", "certManager": {"serviceNames": False, "dnsNames": ["*.example.com"]}},
        },
        "/tls/certManager/dnsNames",
        "a whole name first",
    ),
    ({"tls": {"certManager": {"serviceNames": False}}}, "/tls/certManager/dnsNames", "that the certificate states"),
]
