#!/usr/bin/env bash
# MATH with GRPO or RECIPE=distill, or DAPO-Math-17k with RECIPE=dapo: makes the data if they are missing, then trains.
# Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
recipe=${RECIPE:-grpo}
if [ "$recipe" = dapo ]; then
  [ -f data/dapo/test.parquet ] || python -m recipes.math.prepare_dapo --out data/dapo
else
  [ -f data/math/test.parquet ] || python -m recipes.math.prepare --out data/math
fi
exec verl-like train "recipes/math/$recipe.yaml" "$@"
