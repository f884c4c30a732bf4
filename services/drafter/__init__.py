"""The drafter: proposes tokens into the mailbox of the target's arena and holds nothing that cannot be rebuilt."""
