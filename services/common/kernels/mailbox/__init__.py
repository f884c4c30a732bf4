"""What target and drafter hand one another in shared memory: drafts with their tags, and what was committed.

Suffixes: S slots + 1, B rows of a round, K drafts of a row.
"""

from services.common.kernels.dispatch import Operator
from services.common.kernels.mailbox import reference
from services.common.kernels.mailbox.reference import ABSENT, Mapped

__all__ = ["ABSENT", "Mapped", "publish_slots", "read_mailbox", "write_mailbox"]

read_mailbox = Operator(reference.read_mailbox)
write_mailbox = Operator(reference.write_mailbox, told_by=4)
publish_slots = Operator(reference.publish_slots)
