"""Multi-turn episodes: environments, tools and agents. Imports neither Ray nor vLLM."""
