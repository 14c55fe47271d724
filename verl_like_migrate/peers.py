"""Names of the projects whose commands, files or arguments in Python can be read."""

PEERS = ("verl", "easyr1", "openrlhf")
KNOWN = ("trl", *PEERS)  # TRL's names on a command line are known only for hints
INTERFACES = ("trl_grpo", "trl_sft", "trl_dpo", "trl_reward")  # configurations in Python, each with a table
