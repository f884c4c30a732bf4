"""API keys: digests at rest, constant-time comparison, tenants with salts and limits."""

import hmac
from pathlib import Path

import pytest

from services.gateway.auth import TenantsError, digest, load_tenants


def write(folder: Path, text: str) -> Path:
    path = folder / "tenants.toml"
    path.write_text(text)
    return path


def entry(name: str, key: str, more: str = "") -> str:
    return f"[[tenant]]\nname = '{name}'\nkey_sha256 = ['{digest(key)}']\n{more}\n"


def test_keys_lead_to_their_tenant_and_others_to_none(tmp_path: Path) -> None:
    tenants = load_tenants(write(tmp_path, entry("a", "key-a", "max_requests = 3") + entry("b", "key-b")))
    found = tenants.find("key-a")
    assert found is not None
    assert found.name == "a"
    assert found.bound is not None
    assert found.bound.requests == 3
    other = tenants.find("key-b")
    assert other is not None
    assert other.salt != found.salt
    assert tenants.find("key-c") is None
    assert tenants.find("") is None


def test_every_digest_is_compared_in_constant_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tenants = load_tenants(write(tmp_path, "".join(entry(f"t{index}", f"key-{index}") for index in range(5))))
    compared: list[str] = []
    original = hmac.compare_digest

    def compare(one: str, two: str) -> bool:
        compared.append(two)
        return original(one, two)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    tenants.find("key-0")
    assert len(compared) == 5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not toml [",
        "[[tenant]]\nname='a'\n",
        entry("a", "k", "colour = 1"),
        "[[tenant]]\nname='a'\nkey_sha256=['ab']",
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(TenantsError, match=r"tenants\.toml"):
        load_tenants(write(tmp_path, text))
