"""What a drafter in eight bits costs and gains on a GPU."""
