"""The flags by which every command finds its gateway."""

import argparse
import os
import ssl
from pathlib import Path

from paceline.channel import Tls
from paceline.client import Client
from paceline.errors import InvalidValueError

ADDRESS = "127.0.0.1:50051"
API_KEY = "PACELINE_API_KEY"
"""The variable with the key of a tenant."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.add_argument("--address", default="", help=f"the gateway's gRPC address; default: {ADDRESS}")
    add_credentials(parser)


def add_credentials(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of keys and certificates."""
    parser.add_argument("--key-file", default="", metavar="FILE", help=f"file with the API key; default: {API_KEY}")
    parser.add_argument("--ca", default="", metavar="FILE", help="authority of the gateway's certificate; TLS is used")
    parser.add_argument("--cert", default="", metavar="FILE", help="certificate to present, for mutual TLS")
    parser.add_argument("--cert-key", default="", metavar="FILE", help="its private key")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds the flag by which commands that generate name a model."""
    parser.add_argument("--model", default="", help="model to ask, where the gateway serves several")


def key(chosen: argparse.Namespace) -> str:
    """The API key, of a file or else of the environment; empty without.

    Raises:
        InvalidValueError: its file cannot be read, or neither holds a key.
    """
    if not chosen.key_file:
        found, where = os.environ.get(API_KEY, "").strip(), API_KEY
    else:
        where = f"--key-file: {chosen.key_file}"
        found = content(chosen.key_file, "--key-file").decode("utf-8", "replace").strip()
        if not found:
            raise InvalidValueError(f"{where}: the file is empty; it holds a key and nothing else")
    if not found.isascii() or not (found + "x").isprintable() or " " in found:
        raise InvalidValueError(f"{where}: a key is one line of visible ASCII characters")
    return found


def content(path: str, flag: str) -> bytes:
    """What stands in the file of a flag.

    Raises:
        InvalidValueError: it cannot be read; the message begins with the flag.
    """
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise InvalidValueError(f"{flag}: {path}: {reason}") from None


def certificates(chosen: argparse.Namespace) -> Tls | None:
    """The files of certificates, which are what their flags say; None without.

    gRPC would only say that nobody answers.

    Raises:
        InvalidValueError: a file cannot be read or holds something else; the message begins with its flag.
    """
    if chosen.cert_key and not chosen.cert:
        raise InvalidValueError("--cert-key: needs the certificate of the key beside, by --cert")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if chosen.ca:
        text = content(chosen.ca, "--ca").decode("ascii", "ignore")
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            raise InvalidValueError(f"--ca: {chosen.ca}: holds no certificate in PEM") from None
    if chosen.cert:
        own = chosen.cert_key or chosen.cert
        content(chosen.cert, "--cert")
        content(own, "--cert-key")
        try:
            context.load_cert_chain(chosen.cert, own, password=lambda: "")
        except (OSError, ValueError):
            beside = "" if chosen.cert_key else "; --cert-key names the file of its key"
            raise InvalidValueError(f"--cert: {chosen.cert}: no certificate in PEM with its key{beside}") from None
        return Tls(chosen.ca, chosen.cert, own)
    return Tls(chosen.ca) if chosen.ca else None


def client(chosen: argparse.Namespace) -> Client:
    """A client by the flags; nothing is sent yet.

    Raises:
        InvalidValueError: a flag's file is not what it should be, or the address is none.
    """
    return Client(chosen.address or ADDRESS, key=key(chosen), tls=certificates(chosen))
