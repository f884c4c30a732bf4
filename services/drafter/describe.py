"""The drafter's description of itself."""

import os
import secrets

from services.common.pair.attach import DrafterInfo
from services.drafter.attachment import Attachment
from services.drafter.proposers import Proposer


class DrafterIdentity:
    """This process instance; made once per start."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._instance_id = secrets.token_hex(8)

    def info(self, proposer: Proposer, attachment: Attachment | None) -> DrafterInfo:
        """The drafter as it is now; without an attachment a draft without limit is stated as 0."""
        longest = (proposer.max_draft or 0) if attachment is None else attachment.max_draft
        return DrafterInfo(proposer.kind, proposer.revision, longest, os.getpid(), self._instance_id, self._device)
