#!/usr/bin/env bash
# Responses of up to 32k tokens: makes the data if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/dapo/test.parquet ] || python -m recipes.math.prepare_dapo --out data/dapo
exec verl-like train recipes/long_context/dapo.yaml "$@"
