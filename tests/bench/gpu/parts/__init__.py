"""What the parts of a served round take, by stamps of one clock in the target's and the drafter's captured steps."""
