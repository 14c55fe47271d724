"""Everything that needs a GPU, checked by one command: ``python -m benchmarks.gpu_check``, or ``make gpu-check``.

``checks/`` has a file for each check and the table of them. A new one is a file with a function ``check(scene)`` that
adds its figures to ``Findings``, and a line of the table.
"""
