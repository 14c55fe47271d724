"""Ready-made runs: each folder has a script that prepares data, and settings."""
