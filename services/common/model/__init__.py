"""Model shapes, checkpoints and forwards; no requests, no scheduling, no wire."""

from services.common.model.drafters.block import DraftBlock, load_block
from services.common.model.drafters.chain import DraftChain, load_chain
from services.common.model.fields.errors import ModelError
from services.common.model.spec import ModelSpec
from services.common.model.states.draft_context import DraftContext, NoContext
from services.common.model.target import Target
from services.common.model.target_reading import load_target

__all__ = [
    "DraftBlock",
    "DraftChain",
    "DraftContext",
    "ModelError",
    "ModelSpec",
    "NoContext",
    "Target",
    "load_block",
    "load_chain",
    "load_target",
]
