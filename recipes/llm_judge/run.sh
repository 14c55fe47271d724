#!/usr/bin/env bash
# UltraFeedback's prompts, graded by a judge that the run starts, or with RECIPE=served by a judge at an endpoint: makes
# the data if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/ultrafeedback/test.parquet ] || python -m recipes.reward_model.prepare --out data/ultrafeedback
exec verl-like train "recipes/llm_judge/${RECIPE:-grpo}.yaml" "$@"
