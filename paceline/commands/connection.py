"""The flags by which every command finds its gateway."""

import argparse
import os
from pathlib import Path

from paceline.channel import Tls
from paceline.client import Client

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
        OSError: its file cannot be read.
    """
    if not chosen.key_file:
        return os.environ.get(API_KEY, "").strip()
    return Path(chosen.key_file).read_text(encoding="utf-8").strip()


def client(chosen: argparse.Namespace) -> Client:
    """A client by the flags; nothing is sent yet.

    Raises:
        OSError: a file of theirs cannot be read.
    """
    tls = Tls(chosen.ca, chosen.cert, chosen.cert_key) if chosen.ca or chosen.cert else None
    return Client(chosen.address or ADDRESS, key=key(chosen), tls=tls)
