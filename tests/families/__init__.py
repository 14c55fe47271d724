"""Model families: a small one of each on the real stack, and the page that tells what came of it."""
