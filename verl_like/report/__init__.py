"""The report of a run: its records as one page that needs no server."""
