#!/usr/bin/env bash
# DPO on UltraFeedback, or with RECIPE=sft supervised training, RECIPE=kto KTO, RECIPE=rm a reward model: makes the data
# if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
recipe=${RECIPE:-dpo}
[ -f data/ultrafeedback/test.parquet ] || python -m recipes.ultrafeedback.prepare --out data/ultrafeedback
exec verl-like "${recipe/kto/dpo}" "recipes/ultrafeedback/$recipe.yaml" "$@"
