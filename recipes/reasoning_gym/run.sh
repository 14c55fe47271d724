#!/usr/bin/env bash
# Tasks of reasoning-gym (TASKS, separated by commas): makes the problems if they are missing, then trains. Arguments are
# overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
out=data/reasoning_gym
make() {
  python -m verl_like.data.reasoning_gym --task "${TASKS:-chain_sum,leg_counting,simple_equations,spell_backward}" "$@"
}
[ -f $out/train.parquet ] || make --size 4000 --seed 1 --out $out/train.parquet
[ -f $out/test.parquet ] || make --size 100 --seed 2 --out $out/test.parquet
exec verl-like train recipes/reasoning_gym/grpo.yaml "$@"
