"""Certificates made on the spot."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = datetime.datetime.now(datetime.UTC)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class Authority:
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def make(cls) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        builder = started("authority", "authority", key, 30).add_extension(x509.BasicConstraints(True, None), True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def write(self, path: Path) -> str:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)

    def issue(self, folder: Path, common_name: str, days: int = 10, host: str = "") -> tuple[str, str]:
        """Writes cert.pem and key.pem for this machine, or for a host alone; returns their paths."""
        folder.mkdir(exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        addresses: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        hosts = [x509.DNSName(host)] if host else [x509.DNSName("localhost"), *addresses]
        builder = started(common_name, "authority", key, days)
        made = builder.add_extension(x509.SubjectAlternativeName(hosts), False).sign(self.key, hashes.SHA256())
        (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        (folder / "key.pem").write_bytes(pem)
        return str(folder / "cert.pem"), str(folder / "key.pem")


def started(subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - datetime.timedelta(days=1))
        .not_valid_after(NOW + datetime.timedelta(days=days))
    )
