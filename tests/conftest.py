"""What all tests share."""

from hypothesis import settings

# Hypothesis's own deadline, 200 ms for each example, is no claim of ours, and a busy machine misses it.
settings.register_profile("verl_like", deadline=None)
settings.load_profile("verl_like")
