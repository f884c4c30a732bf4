"""API keys: digests at rest, constant-time comparison, tenants with salts and limits."""

import hmac
from pathlib import Path

import pytest

from services.gateway.tenancy.tenants import TenantsError, TenantsFile, digest
from tests.support.told import told


def write(folder: Path, text: str) -> Path:
    path = folder / "tenants.toml"
    path.write_text(text)
    return path


def entry(name: str, key: str, more: str = "") -> str:
    return f"[[tenant]]\nname = '{name}'\nkey_sha256 = ['{digest(key)}']\n{more}\n"


def test_keys_lead_to_their_tenant_and_others_to_none(tmp_path: Path) -> None:
    tenants = TenantsFile(write(tmp_path, entry("a", "key-a", "max_requests = 3") + entry("b", "key-b")))
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
    tenants = TenantsFile(write(tmp_path, "".join(entry(f"t{index}", f"key-{index}") for index in range(5))))
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
        "tenant = ['a']",
        entry("a", "k", "colour = 1"),
        "[[tenant]]\nname='a'\nkey_sha256=['ab']",
        f"[[tenant]]\nname='a'\nkey_sha256=['{'g' * 64}']",
        f"[[tenant]]\nname='a'\nkey_sha256=['{'ä' * 64}']",
        f"[[tenant]]\nname='a'\nkey_sha256=['{digest('k')}', '{digest('k').upper()}']",
        entry("a", "k") + entry("b", "k"),
        entry("a", "k") + entry("a", "other"),
        entry("", "k"),
        entry("a", "k", "max_priority = 101"),
        entry("a", "k", "max_priority = -1"),
    ],
)
def test_a_broken_file_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(TenantsError, match=r"tenants\.toml"):
        TenantsFile(write(tmp_path, text))


def test_a_refusal_does_not_repeat_what_may_be_a_key(tmp_path: Path) -> None:
    """Somebody may have pasted the key instead of its digest."""
    with pytest.raises(TenantsError) as refused:
        TenantsFile(write(tmp_path, "[[tenant]]\nname='a'\nkey_sha256=['the-key-itself']"))
    assert "the-key" not in str(refused.value)
    assert "key_sha256[0] of 'a'" in str(refused.value)


async def test_a_file_is_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Keys come and go; a file that is broken or gone changes nothing and is told once."""
    path = write(tmp_path, entry("a", "key-a"))
    tenants = TenantsFile(path)
    write(tmp_path, entry("a", "key-b", "max_priority = 7"))
    await tenants.look()
    found = tenants.find("key-b")
    assert tenants.find("key-a") is None
    assert found is not None
    assert found.priority == 7
    for broken in ("not toml [", None):
        path.unlink()
        if broken is not None:
            write(tmp_path, broken)
        caplog.clear()
        for _ in range(3):
            await tenants.look()
        assert tenants.find("key-b") is found
        assert [record.levelname for record in told(caplog, "services.gateway.tenancy")] == ["ERROR"]
    write(tmp_path, "tenant = []")
    await tenants.look()
    assert tenants.find("key-b") is None, "the last key can be revoked"
