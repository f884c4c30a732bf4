"""Settings of the cluster controller."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from deploy.cluster.groups import DRAFTER, TARGET
from deploy.cluster.mps import Wanted
from deploy.cluster.node import AUTO
from services.common.serving.settings import GROUP, Choice

Placement = Literal["auto", "gpu", "cpu"]


@dataclass(frozen=True)
class ClusterSettings:
    """Settings of the controller: what to place and where to announce it.

    Raises:
        ValueError: from construction, when a value is out of range.
    """

    # Model
    model: str
    """Folder of the target's checkpoint."""
    drafter: str = ""
    """Folder of the drafter's checkpoint, mtp for the head in the model's own; empty serves without one."""
    proposer: str = "dflash"
    """Proposer of the drafter: dflash, ngram or none."""
    drafter_weights: str = "auto"
    """What products of a dflash drafter read: int8, with a head of its own, or numbers of dtype; auto is int8 on a CPU
    that multiplies eight-bit integers quickly, beside float32, and on a GPU beside bfloat16."""
    drafter_sample_from_anchor: Choice = "auto"
    """Whether the anchor's row of a dflash or dspark checkpoint predicts: true, false, or auto, as the file says, which
    not all files do. A wrong layout is never right: hardly a draft is accepted."""
    model_name: str = "paceline-embedded"
    """Public name of the model."""

    # Pairs
    pairs: int = 1
    """Pairs to keep running."""
    pairs_per_gpu: int = 1
    """Pairs that share one GPU; each takes its part of it, and of memory_fraction."""
    pair_prefix: str = ""
    """Put before the ids of the pairs, so that they differ between machines of one fleet."""
    placement: Placement = "auto"
    """gpu asks Ray for whole GPUs, cpu for a stand-in resource, auto takes GPUs when Ray finds any."""
    target_share: float = 0.7
    """Part of a pair's bundle that the target takes; the drafter takes the rest."""

    # Services of a pair
    device: str = ""
    """torch device of both services; empty: cuda when placed on GPUs, else cpu."""
    dtype: str = ""
    """Data type of the weights; empty takes the device's default."""
    adaptive: bool = True
    """Chooses the width of every round by measured cost and acceptance; false always takes the widest."""
    slots: int = 16
    """Requests that one target runs at once."""
    context_limit: int = 0
    """Most tokens of a prompt and its answer; 0 takes the model's."""
    activations: str = "auto"
    """What products read: auto rows in dtype, int8 rows rounded to eight bits, each by its own largest number, by whole
    numbers of a compressed-tensors file that is int-quantized; fp8 rows rounded to e4m3 in groups, by codes of a file
    whose FP8 has scales of blocks. Its text is another; drafts do not change it."""
    kv_dtype: str = "auto"
    """What keys and values are kept in: auto in dtype, int8 in eight bits with a power of two for each token and head.
    int8 has room for twice as many tokens as bfloat16. Its text is another, the same with drafts and without."""
    memory_fraction: float = 0.9
    """Part of a GPU that a pair may fill: weights, K/V and all else."""

    # Listeners
    listen: str = "127.0.0.1:0"
    """Address of FleetService."""
    health: str = "127.0.0.1:0"
    """Address of the plaintext health service."""
    metrics: str = "127.0.0.1:0"
    """Address of the controller's metrics."""
    host: str = ""
    """Host on which targets listen and under which gateways reach them; auto: the address of each pair's own node.
    Empty: Unix sockets below run_dir, for gateways of the same user on this machine."""
    base_port: int = 0
    """First port of the pairs, three each (target, its metrics, the drafter's metrics); 0 lets the system choose.
    With host auto they are numbered by GPU on every node."""

    # Running
    ray_address: str = ""
    """Ray cluster to join; empty starts one inside this process."""
    run_dir: str = ""
    """Folder of sockets, logs and the Ray token, mode 0700; empty makes a temporary one."""
    restart_backoff_s: float = 0.5
    """Seconds before a pair is looked at again after its process died."""
    poll_s: float = 0.25
    """Seconds between two looks at each pair."""
    startup_s: float = 1800.0
    """Seconds in which a pair must be ready; one that is not is started anew."""
    stuck_s: float = 30.0
    """Seconds for which the engine of a target that has work may finish no turn; then its pair is started anew."""
    restart_limit: int = 5
    """Restarts of a pair within restart_window_s; one that needs more is given up."""
    restart_window_s: float = 1800.0
    """Seconds over which restarts of a pair are counted."""
    drain_s: float = 20.0
    """Seconds that targets have when the controller stops; running requests have most of it, then they move."""
    mps: Wanted = "auto"
    """Runs a CUDA MPS daemon for the pairs: the fastest hand-off, but a CUDA fault of a drafter ends its target too.
    auto does so where the driver has it and nobody else's daemon runs."""

    # Access
    tls_cert: str = ""
    """Certificate of FleetService and of the targets; empty serves plaintext."""
    tls_key: str = ""
    """Key of tls_cert."""
    tls_ca: str = ""
    """When set, gateways must present a certificate that it signed."""
    target_client_names: tuple[str, ...] = ()
    """DNS names of which a gateway's certificate must state one; empty: those of tls_cert."""
    session_secret: str = field(default="", repr=False, metadata={"secret": True})
    """What gateways must send to a target; with a host this or tls_ca is needed."""
    session_secret_file: str = ""
    """File with that secret, which targets follow: when it changes, they take the secret before for ten minutes too."""
    insecure: bool = False
    """Lets anybody who reaches a target use it."""

    # Drafters
    watchdog_s: float = 0.0
    """Seconds without drafts after which a target drops its drafter; 0 takes the device's default."""
    target_settings: Mapping[str, Any] = field(default_factory=dict, metadata={GROUP: TARGET})
    """Every other setting of a target, under its own name: --target.widths 1,4."""
    drafter_settings: Mapping[str, Any] = field(default_factory=dict, metadata={GROUP: DRAFTER})
    """Every other setting of a drafter, under its own name: --drafter.ngram-max 6."""

    def __post_init__(self) -> None:
        if self.pairs < 1:
            raise ValueError("pairs must be at least 1")
        if self.pairs_per_gpu < 1:
            raise ValueError("pairs_per_gpu must be at least 1")
        if self.pairs_per_gpu > 1 and self.host == AUTO and self.base_port:
            raise ValueError("pairs_per_gpu: with host auto ports are numbered by GPU, so base_port must be 0")
        _check_patience(self)
        if self.context_limit < 0:
            raise ValueError("context_limit must not be negative")
        if not 0.0 < self.memory_fraction <= 1.0:
            raise ValueError("memory_fraction must lie in (0, 1]")
        if not 0.0 < self.target_share < 1.0:
            raise ValueError("target_share must lie between 0 and 1")
        if self.placement not in ("auto", "gpu", "cpu"):
            raise ValueError("placement must be auto, gpu or cpu")
        if self.mps == "true" and self.ray_address:
            raise ValueError("mps runs a daemon on this machine, and the pairs of ray_address run on others")
        if self.proposer not in ("dflash", "ngram", "none"):
            raise ValueError("proposer must be dflash, ngram or none")


def _check_patience(settings: ClusterSettings) -> None:
    for name in ("startup_s", "stuck_s", "restart_window_s"):
        if not getattr(settings, name) > 0.0:
            raise ValueError(f"{name} must be positive")
    if settings.restart_limit < 0:
        raise ValueError("restart_limit must not be negative")
