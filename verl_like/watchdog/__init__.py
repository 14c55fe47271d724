"""A process that runs next to the training run and reports hung processes with their stage, time and stack traces."""
