#!/usr/bin/env bash
# Geometry3K: makes the data if they are missing, then trains. RECIPE is grpo or grpo_3b; arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/geo3k/test.parquet ] || python -m recipes.geo3k.prepare --out data/geo3k
exec verl-like train "recipes/geo3k/${RECIPE:-grpo}.yaml" "$@"
