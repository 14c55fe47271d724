"""Run programs written by a model, and grade them with tests.

Each scorer thread has one fork server (``fork_server``), which never sees a program or a test. It forks a confined
process (``confinement``) for each program. Results travel back as plain data (``values``) and are compared in another
process (``outcomes``, ``asserts``), so a program cannot pass a test by changing its own interpreter.

This protects the run and the score from accidents and from the tricks that reinforcement learning finds. It is not a
security boundary against a determined attacker, because the kernel is shared. Run code from such a source, with the
whole scorer, in a container or a virtual machine.
"""
