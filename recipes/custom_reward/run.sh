#!/usr/bin/env bash
# GSM8K with the reward of reward.py: makes the data if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/gsm8k/test.parquet ] || python -m recipes.gsm8k.prepare --out data/gsm8k
exec verl-like train recipes/custom_reward/grpo.yaml "$@"
