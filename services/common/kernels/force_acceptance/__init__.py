"""Edits logits for synthetic acceptance: drafts to accept become the best tokens of their rows."""

from services.common.kernels.dispatch import Operator
from services.common.kernels.force_acceptance import reference
from services.common.kernels.force_acceptance.reference import LIFT

__all__ = ["LIFT", "force_acceptance", "force_nodes"]

force_acceptance = Operator(reference.force_acceptance)
force_nodes = Operator(reference.force_nodes)
