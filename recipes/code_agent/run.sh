#!/usr/bin/env bash
# MATH with a Python tool: makes the data if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/math/test.parquet ] || python -m recipes.math.prepare --out data/math
exec verl-like train recipes/code_agent/grpo.yaml "$@"
