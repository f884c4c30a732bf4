"""The command line of `paceline serve`: its own flags, those of the services, and the names that other servers use."""

import argparse
import difflib
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from deploy.cluster.settings import ClusterSettings
from deploy.others_flags import ALIASES, ELSEWHERE
from deploy.shipped import shipped_drafter, shipped_pair, usual_pair
from paceline import bundle
from paceline.commands.connection import ADDRESS, API_KEY
from services.common.request.errors import PacelineError
from services.common.serving import settings, settings_help
from services.gateway.settings import GatewaySettings

HTTP = "127.0.0.1:8000"
LENGTH = "--context-limit"
MULTIPLES = {"k": 1_000, "m": 1_000_000, "K": 1 << 10, "M": 1 << 20}
DTYPES = {"auto": "", "float": "float32", "fp32": "float32", "bf16": "bfloat16"}
"""What other servers call our types of numbers."""
ALIKE = 0.7
"""What a flag must have in common with one that is named in its place."""
HALF = ("half", "float16", "fp16")
NO_HALF = "is not served: take bfloat16 on a GPU, which is as fast and has the range of float32, or float32"
DASHES = ("\N{EM DASH}", "\N{EN DASH}", "\N{MINUS SIGN}")
"""What word processors make of two hyphens."""
_FLAG = re.compile(r"--[A-Za-z]\w*(?:-\w+)*")
"""A flag of this command; those with a dot are for a pair's services, which take both spellings."""
_LONGEST_NAME = 255
"""Bytes of a file's name."""
GATEWAYS = frozenset({
    "attempts", "default_max_tokens", "generation_config", "http_cors_origins", "http_hosts", "http_page",
    "max_queued_tokens", "max_request_s", "max_requests", "outbox_tokens", "report_cached_tokens", "tenants", "tls_ca",
    "tls_cert", "tls_key", "tool_parser", "vllm_engine", "wait_target_s",
})  # fmt: skip
"""Settings of the gateway that this command takes."""
DECIDED = frozenset({
    "model", "drafter", "proposer", "model_name", "pairs", "slots", "host", "run_dir", "tls_ca", "tls_cert", "tls_key",
})  # fmt: skip
"""Settings of the controller that flags of this command, of the same name or another, stand for."""
BEFOREHAND = {
    "model": "model", "drafter": "drafter", "proposer": "proposer", "model_name": "name", "pairs": "pairs",
    "slots": "slots", "grpc": "address", "http": "http",
}  # fmt: skip
"""Settings that may stand in the environment or a file instead, and the values of this command that they are."""
PROPOSERS = ("", "dflash", "ngram", "none")
REFUSALS = {
    r"^argument ([^:]+): invalid int value: ": r"\1: must be a whole number, not ",
    r"^argument ([^:]+): expected one argument$": rf"\1: {settings.NO_VALUE}",
    r"^(-\S+)/(--\S+): ": r"\1: ",
}
"""What argparse says, and what is said in its place."""
LONGEST_NAME = 256
"""Characters of a public name."""


class _Parser(argparse.ArgumentParser):
    """One whose refusals are one line, and whose help tells the settings of the services too."""

    typed: Mapping[str, str] = MappingProxyType({})
    """Settings that were given, and the flags or variables that gave them."""

    def error(self, message: str) -> NoReturn:
        """Ends with code 2."""
        for theirs, ours in REFUSALS.items():
            message = re.sub(theirs, ours, message)
        self.exit(2, f"{self.prog}: {as_typed(message, self.typed)}\n")

    def format_help(self) -> str:
        """Its own flags, those of the gateway, and those of the controller and its pairs, in groups."""
        passed_on = {
            prefix: settings_help.settings_of(group.of, group.free)
            for prefix, (_, group) in settings.groups(ClusterSettings).items()
        }
        cluster = settings.own(ClusterSettings) - DECIDED
        parts = [super().format_help().rstrip(), "The gateway:"]
        parts += settings_help.listed(settings_help.settings_of(GatewaySettings, GATEWAYS), "")
        parts += ["The controller and its pairs:"]
        parts += settings_help.listed(settings_help.settings_of(ClusterSettings, cluster), "")
        for prefix, its in passed_on.items():
            parts += [f"Every {prefix}:", *settings_help.listed(its, f"{prefix}.")]
        names = [f"  {theirs}  the same as {ours}" for theirs, ours in ALIASES.items()]
        return "\n\n".join([*parts, "\n".join(["Names that other servers use are taken, too:", *names])]) + "\n"


def parser(prog: str = "") -> _Parser:
    """The flags of the command itself."""
    start = bundle.start()
    made = _Parser(
        prog=prog or start,
        usage=f"{start} {'[MODEL] [--FLAG VALUE]...' if start != 'make up' else '[ARGS=--FLAG VALUE]...'}",
        description="Serves a model on this machine until Ctrl-C: gateway, target and drafter. Settings of the gateway "
        "and of the controller may stand in the environment: PACELINE_DTYPE for --dtype. Defaults are in brackets.",
        allow_abbrev=False,
    )
    model = made.add_argument_group("Model")
    model.add_argument(
        "--model",
        default="",
        help="folder, GGUF file or hub id of a checkpoint, smollm2 or embedded; "
        "default: smollm2 where it is installed, else embedded",
    )
    model.add_argument(
        "--drafter",
        default="",
        help="folder or hub id of its drafter, smollm2-dflash2, or mtp for the head in its own file; "
        "default: n-gram drafts",
    )
    model.add_argument(
        "--proposer",
        default="",
        metavar="dflash|ngram|none",
        help="what drafts; default: dflash, a checkpoint of any kind, with a drafter, else ngram",
    )
    model.add_argument("--name", default="", help="public name of the model; default: that of its folder")
    model.add_argument("--pairs", type=int, default=1, help="pairs of target and drafter; default: %(default)s")
    model.add_argument("--slots", type=int, default=16, help="requests that a pair runs at once; default: %(default)s")
    listening = made.add_argument_group("Addresses")
    listening.add_argument(
        "--grpc", "--address", dest="address", default=ADDRESS, help="address of the gateway; default: %(default)s"
    )
    listening.add_argument("--http", default=HTTP, help="address of OpenAI's API, empty for none; default: %(default)s")
    listening.add_argument("--host", default="", help="host of OpenAI's API; default: that of --http")
    listening.add_argument("--port", default="", help="port of OpenAI's API; default: that of --http")
    access = made.add_argument_group("Access")
    access.add_argument(
        "--api-key",
        action="append",
        default=[],
        metavar="KEY",
        help=f"key of callers, which others see among the processes; better in {API_KEY} or a file; default: none",
    )
    access.add_argument(
        "--api-key-file", default="", metavar="FILE", help="file with such keys, one a line; default: none"
    )
    return made


def arguments(prog: str = "") -> argparse.Namespace:
    """The command line; without a model it is that of the usual pair. Ends this process for one that is refused, in the
    name of the command that serves or of `prog`.
    """
    made, words = parser(prog), in_our_words(sys.argv[1:])
    stated = _beforehand(made, words)
    made.set_defaults(**stated)
    made.typed = _from_file(words) | typed(sys.argv[1:], os.environ)
    parsed, rest = made.parse_known_args(words)
    parsed.typed = made.typed
    for name in ("model", "drafter"):  # make hands on empty ones.
        setattr(parsed, name, getattr(parsed, name) or stated.get(name, ""))
    if parsed.host or parsed.port:
        if parsed.port and not (re.fullmatch("[0-9]+", parsed.port) and int(parsed.port) <= 0xFFFF):
            made.error(f"--port: {parsed.port!r} is no port: 0 to 65535, 0 for a free one")
        if re.fullmatch(r"[^:]*:\d*|\[.*\]:\d*", parsed.host):
            made.error(f"--host: {parsed.host!r} has a port: give that by --port, or both by --http")
        host, _, port = (parsed.http or HTTP).rpartition(":")
        parsed.http = f"{parsed.host or host}:{parsed.port or port}"
    for flag, name in (("--model", parsed.model), ("--drafter", parsed.drafter)):
        if "\0" in name or any(len(os.fsencode(part)) > _LONGEST_NAME for part in name.split("/")):
            made.error(f"{flag}: no file can have this name: {name[:60]!r}")
    _take_settings(made, parsed, rest)
    _take_pair(made, parsed)
    return parsed


def _from_file(words: Sequence[str]) -> dict[str, str]:
    """The settings of the file of --config, as refusals name them; one that cannot be read was refused before."""
    file = value_of(words, "--config")
    return {name: f"--config: {file}: {name}" for name in settings.beforehand(file, {})}


def _beforehand(made: argparse.ArgumentParser, words: Sequence[str]) -> dict[str, str]:
    """What the environment, and the file of --config, set of this command's own values."""
    try:
        stated = settings.beforehand(value_of(words, "--config"), os.environ)
    except (PacelineError, ValueError, OSError, TypeError) as error:
        made.error(str(error))
    return {mine: str(stated[name]) for name, mine in BEFOREHAND.items() if name in stated}


def _take_settings(made: argparse.ArgumentParser, parsed: argparse.Namespace, rest: Sequence[str]) -> None:
    """Adds the keys, and the flags of gateway and controller."""
    parsed.gateway_flags, others = gateways_own(rest)
    try:
        parsed.api_keys = keys(parsed.api_key, parsed.api_key_file, os.environ)
        if parsed.api_keys and flag_given(parsed.gateway_flags, "--tenants"):
            raise ValueError("--tenants names all keys: leave out --api-key, or add its digest to that file")
        refuse_unknown(others, made.format_help() if others else "")
        parsed.cluster_flags = ["--slots", str(parsed.slots), *with_dtype(others)]
    except (ValueError, OSError) as error:
        made.error(str(error))
    # Nothing that is started needs it: gateways get a file of digests.
    os.environ.pop(API_KEY, None)


def _take_pair(made: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """Fills in what the model that is named, or the usual one, brings with it."""
    if parsed.proposer not in PROPOSERS:
        near = difflib.get_close_matches(parsed.proposer.lower(), PROPOSERS[1:], n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        made.error(f"--proposer: {parsed.proposer!r} is none of {', '.join(PROPOSERS[1:])}{hint}")
    if len(parsed.name) > LONGEST_NAME or not parsed.name.isprintable():
        made.error(f"--name: a model's name is at most {LONGEST_NAME} printable characters")
    _take_drafter(made, parsed)
    pair = shipped_pair(parsed.model) if parsed.model else usual_pair()
    parsed.title = pair.title if pair else ""
    if pair:
        parsed.model, parsed.name = pair.model, parsed.name or pair.name
        if parsed.proposer in ("", "dflash"):
            parsed.drafter = parsed.drafter or pair.drafter
    parsed.name = parsed.name or parsed.model.rstrip("/").rsplit("/", 1)[-1]
    parsed.proposer = parsed.proposer or ("dflash" if parsed.drafter else "ngram")
    if parsed.proposer == "dflash" and not parsed.drafter:
        made.error("--proposer: dflash needs a drafter: name its folder by --drafter, or leave out --proposer dflash")


def _take_drafter(made: argparse.ArgumentParser, parsed: argparse.Namespace) -> None:
    """Puts the folder of a drafter in place of its name."""
    try:
        parsed.drafter = shipped_drafter(parsed.drafter)
    except ValueError as error:
        made.error(str(error))


def keys(given: Sequence[str], file: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that callers may send: those of flags, else of the environment.

    Raises:
        ValueError: one cannot be sent in a header, or the file cannot be read.
    """
    found = [*given, *(_lines("--api-key-file", file) if file else ())]
    if not found and API_KEY in environ:
        found = [environ[API_KEY]]
    if file and not any(line.strip() for line in found):
        raise ValueError(f"--api-key-file: {file} holds no key")
    found = [key.strip() for key in found if key.strip() or key in given]
    if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in found):
        raise ValueError("--api-key: a key is made of visible ASCII characters; paceline key makes one")
    return tuple(dict.fromkeys(found))


def _lines(flag: str, file: str) -> list[str]:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{flag}: {file}: {getattr(error, 'strerror', 'is not UTF-8 text')}") from error


def refuse_unknown(words: Sequence[str], told: str) -> None:
    """Looks for flags that the help does not know; those that are passed on to a pair are their reader's to refuse.

    Raises:
        ValueError: names the first one, and the flag that is most alike.
    """
    known = {*re.findall(r"--[a-z][\w.-]*", told), "--config", "--print-config"}
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        if not name.startswith("--"):
            raise ValueError(f"{word}: flags start with --{_in_place_of_a_flag(word)}")
        flag = name.replace("_", "-")
        if "." not in flag and flag not in known and flag.removesuffix("-file") not in known:
            if flag in ELSEWHERE:
                raise ValueError(f"{name}: there is no such flag; {ELSEWHERE[flag]}")
            near = difflib.get_close_matches(flag.lower(), sorted(known), n=1, cutoff=ALIKE)
            raise ValueError(f"{name}: there is no such flag; {f'did you mean {near[0]}?' if near else 'see --help'}")
        if not equals and flag != "--print-config" and next(left, "--").startswith("--"):
            raise ValueError(f"{name}: {settings.NO_VALUE}")


def _in_place_of_a_flag(word: str) -> str:
    """What a word may have been meant for; empty for one that says it itself."""
    if word.startswith(DASHES):
        return f", two hyphens and no dash: --{word.lstrip(''.join(DASHES))}"
    if word.startswith("-"):
        return ""
    return "; one model is served, and --drafter FOLDER names what drafts for it"


def flag_given(words: Sequence[str], flag: str) -> bool:
    """Whether a flag, or the one of its file, is among words."""
    return any(word.partition("=")[0] in (flag, f"{flag}-file") for word in words)


def value_of(words: Sequence[str], flag: str) -> str:
    """The value of a flag among words, the last one; empty without."""
    found = ""
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if name == flag:
            found = value if equals else after
    return found


def in_our_words(words: Sequence[str]) -> list[str]:
    """Flags as other servers name them, by the names that they have here, and numbers as they write them."""
    found: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        ours = _our_flag(name)
        found.append(ours + equals + (_number(value) if ours == LENGTH else value))
        if found[-2:-1] == [LENGTH]:
            found[-1] = _number(word)
    return found


def _our_flag(name: str) -> str:
    """A flag by its name here, whoever named it, with hyphens or underscores; any other word as it is."""
    flag = name.replace("_", "-") if _FLAG.fullmatch(name) else name
    return ALIASES.get(flag, flag)


def _number(text: str) -> str:
    """A length as others write it: 32k are 32,000 and 32K are 32,768; auto is the model's."""
    if text == "auto":
        return "0"
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)([kKmM])", text)
    return text if found is None else str(int(float(found[1]) * MULTIPLES[found[2]]))


def typed(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Settings that were given, and where: the flags as they were written, or the variables."""
    names = (word.partition("=")[0] for word in words)
    flags = {_setting(_our_flag(name)): name for name in names if name.startswith("--")}
    variables = {settings.setting_of(name): name for name in environ if name.startswith(settings.PREFIX)}
    return variables | flags


def as_typed(message: str, typed: Mapping[str, str]) -> str:
    """A message that names settings by the flags or variables that gave them."""
    for setting, theirs in typed.items():
        message = message.replace(f"--{setting.replace('_', '-')}:", f"{theirs}:")
    return message


def _setting(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def with_dtype(words: Sequence[str]) -> list[str]:
    """The words with our name of the type of numbers.

    Raises:
        ValueError: it is float16.
    """
    asked = value_of(words, "--dtype")
    if asked in HALF:
        raise ValueError(f"--dtype: {asked} {NO_HALF}")
    return [*words, "--dtype", DTYPES[asked]] if asked in DTYPES else [*words]


def gateways_own(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The flags that are a gateway's settings, and all others: clients meet the gateway's TLS and limits alone."""
    mine: list[str] = []
    others: list[str] = []
    left = iter(words)
    for word in left:
        name, equals, _ = word.partition("=")
        setting = name.removeprefix("--").replace("-", "_")
        kept = mine if setting.removesuffix("_file") in GATEWAYS else others
        kept.append(word)
        if name.startswith("--") and not equals:
            kept.extend(itertools.islice(left, 1))
    return mine, others
