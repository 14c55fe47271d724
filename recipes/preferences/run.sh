#!/usr/bin/env bash
# Preferences on sums: makes the warm start if it is missing, then trains a policy by DPO, with RECIPE=kto by KTO, or
# with RECIPE=rm a reward model. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
exec python -m recipes.preferences.train "$@"
