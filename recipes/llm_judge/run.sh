#!/usr/bin/env bash
# UltraFeedback's prompts, graded by a judge of the run's own, or with RECIPE=served by one behind an endpoint: makes the
# data where they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/ultrafeedback/test.parquet ] || python -m recipes.reward_model.prepare --out data/ultrafeedback
exec verl-like train "recipes/llm_judge/${RECIPE:-grpo}.yaml" "$@"
