#!/usr/bin/env bash
# MBPP, graded by unit tests: makes the data if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/mbpp/test.parquet ] || python -m recipes.code.prepare --out data/mbpp
exec verl-like train recipes/code/grpo.yaml "$@"
