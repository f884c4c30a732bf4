"""Which settings of a target and a drafter the controller passes on, has itself, or derives; imports no ray."""

from services.common.serving.settings import Group
from services.drafter.settings import DrafterSettings
from services.target.settings import TargetSettings

# Beside its target a drafter is reached by a Unix socket of the run folder, which needs no TLS.
_SOCKET = "run_dir"


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


_PLACE = {
    "pair_id": "pair_prefix",
    "grpc": "host, base_port and run_dir",
    "health": "host",
    "metrics": "host and base_port",
}

TARGET = Group(
    "target",
    TargetSettings,
    _same("model", "model_name", "device", "dtype", "kv_dtype", "slots", "context_limit", "memory_fraction")
    | _same("activations", "adaptive", "watchdog_s")
    | _same("tls_cert", "tls_key", "tls_ca", "target_client_names", "insecure")
    | _same("session_secret", "session_secret_file")
    | _same("drafter_weights", "drafter_sample_from_anchor")
    | {"drafter_model": "drafter"},
    _PLACE
    | {"drafter_address": _SOCKET, "run_dir": "run_dir"}
    | dict.fromkeys(("drafter_tls_cert", "drafter_tls_key", "drafter_tls_ca", "drafter_tls_name"), _SOCKET)
    | {"drain_grace_s": "drain_s"},
)

DRAFTER = Group(
    "drafter",
    DrafterSettings,
    _same("model_name", "device", "dtype", "proposer")
    | {"model": "drafter", "weights": "drafter_weights", "sample_from_anchor": "drafter_sample_from_anchor"},
    _PLACE | dict.fromkeys(("tls_cert", "tls_key", "tls_ca", "insecure"), _SOCKET),
)
