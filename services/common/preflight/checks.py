"""The checks in their order: the cheap ones first, and nothing of the weights before all else is right."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from services.common.preflight import kind, memory, text
from services.common.preflight.kind import CONFIG
from services.common.preflight.problem import Problem
from services.common.preflight.source import Source
from services.common.serving.hub import OWN_HEAD, FolderError

AUTO = "auto"


@dataclass
class Asked:
    """What is to be served, and what earlier checks have found of it."""

    model: str
    drafter: str = ""
    """Folder or hub id of a drafter, mtp for the head in the model's own file; empty for none."""
    anchored: str = AUTO
    """Whether the drafter's anchor predicts: true, false, or auto for what its file says."""
    device: str = ""
    """cpu, cuda, or empty for what there is."""
    dtype: str = ""
    """Data type of the weights; empty takes the device's."""
    memory_fraction: float = 0.9
    pairs: int = 1
    """Pairs that share the memory of the device."""
    expert_bytes: int = 0
    """Bytes that experts may take of a GPU; 0: all."""
    context_limit: int = 0
    """Most tokens of a request that are asked for; 0 takes the model's."""
    elsewhere: bool = False
    """The pairs run on other machines, of whose memory and devices nothing is known here."""
    activations: str = AUTO
    """What rows are rounded to before they are multiplied: auto, int8 or fp8."""
    kv_dtype: str = AUTO
    """Numbers of keys and values: auto, or int8."""
    weightless: bool = False
    """Weights are drawn at random: there need be none."""
    target: Source = field(init=False)
    draft: Source | None = field(init=False)

    def __post_init__(self) -> None:
        self.target = Source(self.model)
        self.draft = Source(self.model if self.drafter == OWN_HEAD else self.drafter) if self.drafter else None

    @property
    def sources(self) -> tuple[Source, ...]:
        """The target's checkpoint, and the drafter's where it has one."""
        return (self.target,) if self.draft is None else (self.target, self.draft)


Check = Callable[[Asked], Problem | None]


def places(asked: Asked) -> Problem | None:
    """Both checkpoints are folders in the layout that is read, or hub ids."""
    for source in asked.sources:
        if found := None if source.remote else kind.begun_problem(source.name):
            return found
        if source.described is not None:
            continue
        found = None if source.remote else kind.path_problem(source.name)
        if found := found or kind.names_problem(source, asked.weightless) or kind.content_problem(source):
            return found
    return None


def configurations(asked: Asked) -> Problem | None:
    """The target is of a known architecture, and the drafter was made for it."""
    # Imported where they are needed: torch takes a second.
    from services.common.preflight import weights

    spec = weights.target_spec(asked.target)
    if asked.draft is not None:
        weights.drafter_spec(asked.draft, spec, asked.anchored)
    if asked.context_limit > spec.max_positions:
        told = f"{asked.context_limit} are too many: {asked.target.name} has {spec.max_positions} positions"
        return Problem("--context-limit", told, "give fewer, or leave it out")
    return None


def rounding(asked: Asked) -> Problem | None:
    """The file has what rows of eight bits are multiplied by."""
    from services.common.preflight import weights

    if asked.activations == AUTO:
        return None
    on_gpu = not asked.elsewhere and _has_gpu(asked)
    sentence, remedy = weights.rounding_problem(asked.target, asked.activations, asked.weightless, on_gpu)
    return Problem(f"--activations {asked.activations}", sentence, remedy) if sentence else None


def coding(asked: Asked) -> Problem | None:
    """Kernels take keys and values in eight bits of this model's heads."""
    from services.common.preflight import weights

    if asked.kv_dtype == AUTO or not (asked.elsewhere or _has_gpu(asked)):
        return None
    sentence = weights.coding_problem(asked.target)
    return Problem(f"--kv-dtype {asked.kv_dtype}", sentence, "leave it out") if sentence else None


def residency(asked: Asked) -> Problem | None:
    """Experts may lie beside a GPU: there is one, and the model has experts of which it holds some."""
    from services.common.preflight import weights

    if not asked.expert_bytes:
        return None
    flag = f"--target.expert-bytes {asked.expert_bytes}"
    if not (asked.elsewhere or _has_gpu(asked)):
        return Problem(flag, "on a CPU all experts lie in its memory", "leave it out")
    sentence = weights.residency_problem(asked.target, asked.expert_bytes, memory.SIZES.get(asked.dtype or "bfloat16"))
    return Problem(flag, sentence, "give more, or leave it out") if sentence else None


def _has_gpu(asked: Asked) -> bool:
    """Whether the pairs of this machine compute on a GPU."""
    return asked.device == "cuda" or (asked.device != "cpu" and bool(memory.gpus()))


def device(asked: Asked) -> Problem | None:
    """There is a GPU where one is asked for."""
    if asked.device != "cuda" or asked.elsewhere or memory.gpus():
        return None
    import torch

    if torch.cuda.is_available():
        return None
    return Problem("--device cuda", "no GPU that this process may use", "leave it out to serve on the CPU")


def tokenizer(asked: Asked) -> Problem | None:
    """The tokenizer is one that the gateway can use, and the model's."""
    from services.common.preflight import weights

    return text.tokenizer_problem(asked.target, weights.target_spec(asked.target).vocab_size)


def template(asked: Asked) -> Problem | None:
    """Chats can be rendered."""
    return text.template_problem(asked.target)


def room(asked: Asked) -> Problem | None:
    """The weights fit into the memory."""
    if asked.elsewhere:
        return None
    from services.common.preflight import weights

    target = weights.target_spec(asked.target)
    drafter = None if asked.draft is None else weights.drafter_spec(asked.draft, target)
    found = () if asked.device == "cpu" else memory.gpus()
    dtype = asked.dtype or ("bfloat16" if found or asked.device == "cuda" else "float32")
    if dtype not in memory.SIZES or (asked.device == "cuda" and not found):
        return None  # Settings refuse the one, and nothing is known of the other.
    coded = dtype == "bfloat16" and not asked.weightless and weights.has_codes_of_experts(asked.target)
    need = memory.Need(*weights.numbers(target, drafter), asked.expert_bytes, coded)
    if asked.activations != AUTO:
        need = replace(need, target=-(-need.target // memory.SIZES[dtype]))  # a byte each
    return memory.memory_problem(asked.target.name, need, found, dtype, asked.memory_fraction, asked.pairs)


def tensors(asked: Asked) -> Problem | None:
    """Index and headers hold the tensors that the architecture asks for."""
    from services.common.preflight import weights

    if asked.weightless:
        return None
    weights.check_target(asked.target)
    if asked.draft is not None:
        weights.check_drafter(asked.draft, weights.drafter_spec(asked.draft, None))
    return None


def manifests(asked: Asked) -> Problem | None:
    """A folder that has a manifest is as it says."""
    from services.common.preflight import weights

    for source in () if asked.weightless else asked.sources:
        weights.check_manifest(source)
    return None


def roles(asked: Asked) -> Problem | None:
    """The target is no drafter, and the drafter no target."""
    from services.common.preflight import weights

    if told := weights.drafts_only(asked.target):
        return Problem(
            asked.target.place(CONFIG), f"is a drafter ({told})", "give it as --drafter, and its model as MODEL"
        )
    if asked.draft is None or not (told := weights.generates(asked.draft)):
        return None
    if asked.drafter == OWN_HEAD:
        return Problem(asked.draft.place(CONFIG), f"{told} has no drafting head (mtp)", "leave out --drafter mtp")
    what = "is the model itself" if asked.drafter == asked.model else f"is a model ({told}), not a drafter of one"
    return Problem(asked.draft.place(CONFIG), what, "leave out --drafter for n-gram drafts")


def adapter(asked: Asked) -> Problem | None:
    """An adapter that lies beside the weights would be applied by other libraries."""
    file = "adapter_config.json"
    if file not in asked.target.files:
        return None
    sentence, remedy = "is not applied: the weights are served as they are", "merge it (peft: merge_and_unload)"
    return Problem(asked.target.place(file), sentence, remedy, fatal=False)


CHECKS: tuple[Check, ...] = (
    *(places, device, roles, configurations, rounding, coding, residency),
    *(tensors, tokenizer, template, adapter, manifests, room),
)


def problems(asked: Asked, checks: Sequence[Check] = CHECKS) -> Iterator[Problem]:
    """What the checks find, up to the first that is fatal."""
    for check in checks:
        try:
            found = check(asked)
        except (FolderError, OSError, ValueError) as error:  # ModelError is a ValueError.
            found = Problem("", _as_named(asked, str(error)))
        if found is not None:
            yield found
            if found.fatal:
                return


def _as_named(asked: Asked, text: str) -> str:
    """A text that names a GGUF file, not the folder of the cache that describes it."""
    for source in asked.sources:
        try:
            folder = source.described
        except (FolderError, OSError):
            continue
        for file in ("", CONFIG, "generation_config.json") if folder is not None else ():
            text = text.replace(f"{folder}/{file}:" if file else f"{folder}:", f"{source.name}:")
    return text


def refuse(model: str, drafter: str = "") -> None:
    """What a worker asks before it loads: the loader itself compares configuration and tensors.

    Raises:
        ModelError: a place holds no checkpoint; one line.
    """
    from services.common.model.fields.errors import ModelError

    for found in problems(Asked(model, drafter), (places,)):
        raise ModelError(found.line)
