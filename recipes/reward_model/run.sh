#!/usr/bin/env bash
# UltraFeedback's prompts, scored by a reward model: makes the data if they are missing, then trains. Arguments are
# overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/ultrafeedback/test.parquet ] || python -m recipes.reward_model.prepare --out data/ultrafeedback
exec verl-like train recipes/reward_model/rloo.yaml "$@"
