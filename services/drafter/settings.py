"""Settings of a drafter."""

from dataclasses import dataclass

from services.common.serving.callers import guarded
from services.common.serving.settings import Choice

PROPOSERS = ("dflash", "ngram", "none")
DTYPES = ("float32", "float64", "bfloat16")
WEIGHTS = ("auto", "int8", "dtype")
MOST_CANDIDATES = 32
MOST_PAST = 1_000_000
"""Tokens kept for a tenant: some 300 bytes each."""


@dataclass(frozen=True, slots=True)
class DrafterSettings:
    """Settings of one drafter process."""

    # Model
    model: str = ""
    """Folder of the drafter checkpoint, whose config.json names its kind, or of a model with a drafting head in its own
    file; needed by the dflash proposer alone."""
    random_weights: bool = False
    """Reads the checkpoint's configuration only and draws the weights: for measurements."""
    proposer: str = "dflash"
    """What proposes: dflash, which is a checkpoint of any kind that is served, ngram, or none."""
    device: str = "cpu"
    """Device of the arena: cpu or cuda."""
    dtype: str = "float32"
    """Data type of the drafter's weights; the target's."""
    weights: str = "auto"
    """What products read: int8, with a copy of the head, or numbers of dtype; auto is int8 on a CPU that multiplies
    eight-bit integers quickly, beside float32."""
    sample_from_anchor: Choice = "auto"
    """Whether the anchor's row of a dflash or dspark checkpoint predicts, as its target has it: true, false, or auto,
    as the file says, which not all files do."""
    markov_candidates: int = 16
    """Tokens of a position among which a dspark checkpoint chooses by the token before: the best without it. A draft
    reads that many rows of its bias; 0: all tokens and all rows, as its makers serve it."""
    threads: int = 1
    """Threads of one forward; 0 leaves torch's choice."""
    core: int = -1
    """Core that drafting stays on; -1 leaves it to the system."""
    compile_threads: int = 16
    """Threads, or as many as there are processors, that compile kernels before steps are captured on a GPU; 1 compiles
    each when it is met."""
    short_blocks: bool = False
    """Runs blocks of the round's width instead of the trained size: only for checkpoints trained for it."""
    # Drafts
    ngram_max: int = 4
    """Longest suffix that the ngram proposer looks up."""
    ngram_min: int = 1
    """Shortest suffix that the ngram proposer looks up."""
    lookup_from: int = 0
    """With a checkpoint: where so many tokens at the text's end have occurred before, drafts go on as the text
    mostly did then, as a path beside the checkpoint's where drafts are trees; 0: it drafts alone."""
    calibrated: bool = False
    """Where drafts are trees, on a CPU: a checkpoint's own confidence counts, and what it says of each position is
    corrected by how often it was right in the texts so far. With the drafters counted it brought nothing."""
    past_outputs: int = 0
    """Tokens of earlier answers that are kept for each tenant and looked up too, beside ngram or lookup_from, on a CPU;
    0: none. How many drafts are accepted then tells of one's own earlier answers, never of another tenant's. Callers
    without a tenant have none."""
    pace_timeout_s: float = 30.0
    """Seconds within which the target of an attachment opens its Pace stream, else the attachment is freed."""
    # Names
    model_name: str = "paceline-embedded"
    """Public model name, for metrics."""
    pair_id: str = "pair-0"
    """Pair, for metrics."""
    # Listeners and access
    grpc: str = ""
    """Address of the gRPC listener; unix:/path beside a target. Empty makes a Unix socket in a folder of its own."""
    health: str = "127.0.0.1:0"
    """Address of the health listener."""
    metrics: str = "127.0.0.1:0"
    """Address of the metrics listener."""
    tls_cert: str = ""
    """PEM certificate of the gRPC listener, for a target on another host; plaintext without."""
    tls_key: str = ""
    """Key of tls_cert."""
    tls_ca: str = ""
    """Targets must present a certificate that this one signed; needed over TCP."""
    insecure: bool = False
    """Lets anybody who reaches a TCP listener attach."""
    # Running
    propagation_s: float = 0.0
    """Seconds between NOT_SERVING and the end, for watchers to notice."""
    log_level: str = "info"
    """Lowest level that is logged."""

    def __post_init__(self) -> None:
        """Refuses combinations that cannot run.

        Raises:
            ValueError: names the setting at fault.
        """
        for name, known in (
            ("proposer", PROPOSERS),
            ("dtype", DTYPES),
            ("weights", WEIGHTS),
        ):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        if self.proposer == "dflash" and not self.model:
            raise ValueError("model must name a drafter checkpoint for the dflash proposer")
        if not 1 <= self.ngram_min <= self.ngram_max <= 16:
            raise ValueError("ngram_min and ngram_max must satisfy 1 <= ngram_min <= ngram_max <= 16")
        for name, right, rule in (
            ("lookup_from", 0 <= self.lookup_from <= 16, "must be in [0, 16]"),
            ("markov_candidates", 0 <= self.markov_candidates <= MOST_CANDIDATES, f"must be in [0, {MOST_CANDIDATES}]"),
            ("past_outputs", 0 <= self.past_outputs <= MOST_PAST, f"must be in [0, {MOST_PAST}]"),
            ("past_outputs", not self.past_outputs or self.device == "cpu", "needs a CPU: steps of a GPU read no host"),
            ("calibrated", not self.calibrated or self.device == "cpu", "needs a CPU: steps of a GPU read no host"),
            ("pace_timeout_s", self.pace_timeout_s > 0, "must be positive"),
            ("core", self.core >= -1, "must be a core's number, or -1 for any"),
            ("threads", self.threads >= 0, "must be 0 or more"),
            ("compile_threads", self.compile_threads >= 1, "must be 1 or more"),
        ):
            if not right:
                raise ValueError(f"{name} {rule}")
        if bool(self.tls_cert) != bool(self.tls_key) or (self.tls_ca and not self.tls_cert):
            raise ValueError("tls_cert needs tls_key beside, and tls_ca needs both")
        if not guarded(self.grpc, self.tls_ca, self.insecure):
            raise ValueError("grpc: over TCP anybody could attach: give tls_ca or say insecure; unix:/path needs none")
