"""The drafter as the target sees it: offers, attachments, and every mode of hand-off."""
