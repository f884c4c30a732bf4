"""What Ray places as a pair."""

from pathlib import Path

from deploy.cluster.cores import Cores
from deploy.cluster.derived import drafter_settings, pair_folder, pair_id, target_settings
from deploy.cluster.pair import PairSpec
from deploy.cluster.runtime import STAND_IN
from deploy.cluster.settings import ClusterSettings


def pair_spec(
    settings: ClusterSettings, index: int, resource: str, run_dir: Path, cores: Cores | None = None
) -> PairSpec:
    """What to place as pair number index; makes its folder, mode 0700. Without a GPU it takes one of the cores."""
    pair_folder(run_dir, index).mkdir(mode=0o700, exist_ok=True)
    device = settings.device or ("cpu" if resource == STAND_IN else "cuda")
    core = cores.take(index) if cores is not None and device == "cpu" else -1
    return PairSpec(
        pair_id=pair_id(settings, index),
        target=target_settings(settings, index, run_dir, device, core),
        drafter=None if settings.proposer == "none" else drafter_settings(settings, index, run_dir, device, core),
        resource=resource,
        amount=1.0 if resource == STAND_IN else 1.0 / settings.pairs_per_gpu,
        target_share=settings.target_share,
    )
