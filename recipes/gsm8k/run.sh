#!/usr/bin/env bash
# GSM8K: makes the data if they are missing, then trains. RECIPE is grpo, ppo, grpo_8b or ppo_8b; arguments are
# overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/gsm8k/test.parquet ] || python -m recipes.gsm8k.prepare --out data/gsm8k
exec verl-like train "recipes/gsm8k/${RECIPE:-grpo}.yaml" "$@"
