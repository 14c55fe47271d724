"""Model families: a small model of each family, run on the real stack, and the page with the results."""
