"""Fork the workers of a node from one process that has imported their libraries.

``start.py`` runs in the driver and starts that process, ``server.py`` is its program, and ``setup_worker.py`` is the
program that the raylet starts for each worker.
"""
