"""Ready-made runs: each folder prepares its data and holds its settings."""
