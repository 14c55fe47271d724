"""A process beside the run that says who stands still: which process, in which stage, since when, and its stacks."""
