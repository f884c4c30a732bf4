"""Ways into a release from outside the cluster: routes of the Gateway API and an Ingress, to ports that are there."""

from typing import Any

import pytest
import yaml

from tests.deploy.full.charts import BASE, ISSUERS, NAMESPACE, VARIANTS, notes, render, variant
from tests.deploy.test_values import merged

KINDS = ("GRPCRoute", "HTTPRoute", "BackendTLSPolicy", "Ingress")


def kinds(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The ways in of a release by kind, one each."""
    found = [document for document in documents if document["kind"] in KINDS]
    assert len({document["kind"] for document in found}) == len(found)
    return {document["kind"]: document for document in found}


def service(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """The gateways' Service: its ports by name."""
    (found,) = [d for d in documents if d["kind"] == "Service" and d["metadata"]["name"] == "llm"]
    return {port["name"]: port for port in found["spec"]["ports"]}


def test_without_being_asked_there_is_no_way_in() -> None:
    assert kinds(variant("defaults")) == {}
    assert kinds(variant("http")) == {}


@pytest.mark.parametrize(("kind", "port"), [("GRPCRoute", "grpc"), ("HTTPRoute", "http")])
def test_a_route_leads_to_a_port_of_the_service(kind: str, port: str) -> None:
    documents = variant("routes")
    route = kinds(documents)[kind]
    given = VARIANTS["routes"]["gateway"][f"{port}Route"]
    assert route["spec"]["parentRefs"] == given["parentRefs"]
    assert route["spec"]["hostnames"] == given["hostnames"]
    (rule,) = route["spec"]["rules"]
    assert rule["backendRefs"] == [{"name": "llm", "port": service(documents)[port]["port"]}]


def test_a_gateway_speaks_http_2_to_the_port_of_grpc() -> None:
    assert service(variant("routes"))["grpc"]["appProtocol"] == "kubernetes.io/h2c"


@pytest.mark.parametrize(("given", "rendered"), [("0s", {"request": "0s"}), ("5m", {"request": "5m"}), ("", None)])
def test_no_gateway_ends_a_long_answer_unless_it_is_told_to(given: str, rendered: dict[str, str] | None) -> None:
    values = merged(VARIANTS["routes"], {"gateway": {"httpRoute": {"requestTimeout": given}}})
    found = kinds(render(merged(BASE, values)))
    assert found["HTTPRoute"]["spec"]["rules"][0].get("timeouts") == rendered
    assert "timeouts" not in found["GRPCRoute"]["spec"]["rules"][0], "the Gateway API has none for gRPC"


def test_a_gateway_knows_pods_that_speak_tls_by_their_authority_and_name() -> None:
    documents = variant("routes-tls")
    policy = kinds(documents)["BackendTLSPolicy"]["spec"]
    assert [target["name"] for target in policy["targetRefs"]] == ["llm"]
    assert policy["validation"]["hostname"] == f"llm.{NAMESPACE}.svc"
    assert policy["validation"]["caCertificateRefs"] == [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    assert "appProtocol" not in service(documents)["grpc"]


def test_the_name_that_a_gateway_asks_for_is_in_the_certificate() -> None:
    issued = {"enabled": True, **ISSUERS, "serviceNames": False, "dnsNames": ["llm.example.com"]}
    values = merged(VARIANTS["routes-tls"], {"tls": {"secretName": "", "certManager": issued}})
    documents = render(merged(BASE, values))
    (certificate,) = [document["spec"] for document in documents if document["kind"] == "Certificate"]
    assert certificate["dnsNames"] == ["llm.example.com"], "a public issuer signs no name of the cluster"
    assert kinds(documents)["BackendTLSPolicy"]["spec"]["validation"]["hostname"] in certificate["dnsNames"]
    assert "-authority llm.example.com " in notes(merged(BASE, values))


@pytest.mark.parametrize(("name", "port"), [("ingress", "http"), ("ingress-grpc", "grpc"), ("public-issuer", "http")])
def test_an_ingress_leads_every_host_to_a_port_of_the_service(name: str, port: str) -> None:
    documents = variant(name)
    ingress = kinds(documents)["Ingress"]["spec"]
    (rule,) = ingress["rules"]
    (path,) = rule["http"]["paths"]
    assert (rule["host"], path["path"]) == ("llm.example.com", "/")
    assert path["backend"]["service"] == {"name": "llm", "port": {"name": port}}
    assert port in service(documents)
    assert ingress.get("tls", []) == (
        [{"secretName": "public", "hosts": ["llm.example.com"]}] if name == "public-issuer" else []
    )


def test_routes_of_listeners_or_hosts_of_their_own_may_stand_together() -> None:
    apart = {"gateway": {"httpRoute": {"hostnames": [], "parentRefs": [{"name": "public", "sectionName": "https"}]}}}
    own = {"gateway": {"grpcRoute": {"parentRefs": [{"name": "public", "sectionName": "grpc"}]}}}
    other = {"gateway": {"grpcRoute": {"hostnames": ["*.grpc.example.com"], "parentRefs": [{"name": "public"}]}}}
    for values in (merged(apart, own), other):
        found = kinds(render(merged(BASE, merged(VARIANTS["routes"], values))))
        assert found.keys() == {"GRPCRoute", "HTTPRoute"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"gateway": {"httpPort": 8000}}, ("http://llm.inference.svc:8000/v1",)),
        (
            merged(VARIANTS["routes"], {"tls": {"secretName": "tls", "clientCASecretName": "ca"}}),
            ("https://llm.inference.svc:8000/v1", "gateway.routeCAConfigMapName", "must present one"),
        ),
        (merged(VARIANTS["ingress"], {"tls": {"secretName": "tls"}}), ("backend-protocol: HTTPS",)),
        (merged(VARIANTS["ingress-grpc"], {"tls": {"secretName": "tls"}}), ("backend-protocol: GRPCS",)),
    ],
)
def test_the_notes_tell_what_stands_in_front_what_it_must_do(values: dict[str, Any], said: tuple[str, ...]) -> None:
    text = notes(merged(BASE, values))
    assert all(each in text for each in said), text


def test_a_release_has_no_word_of_tls_in_front_where_the_pods_speak_none() -> None:
    text = notes(merged(BASE, VARIANTS["routes"]))
    assert "routeCAConfigMapName" not in text
    assert yaml.safe_dump(variant("routes")).count("BackendTLSPolicy") == 0
