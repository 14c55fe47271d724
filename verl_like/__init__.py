"""verl_like: reinforcement learning of language models with one readable driver program."""

__version__ = "0.1.0"
