"""Runs programs that a model wrote, and grades them by tests.

One scorer thread has one fork server (``fork_server``), which never sees a program or a test; it forks a confined
process (``confinement``) for each program. What a program computes travels back as plain data (``values``) and is
compared elsewhere (``verdicts``, ``asserts``), so that nothing the program does to its own interpreter makes a test
pass.

This keeps accidents and the tricks that reinforcement learning finds away from the run and the score. It is no security
boundary against a determined attacker: the kernel is shared. Code of such an origin belongs into a container or a
virtual machine, with the whole scorer.
"""
