"""Check everything that needs a GPU by one command: ``python -m benchmarks.gpu_check``, or ``make gpu-check``.

``checks/`` has a file for each check, and a table of them. To add a check, create a file with a function
``check(scene)`` that adds its figures to ``Findings``, and add a line to the table.
"""
