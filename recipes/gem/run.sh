#!/usr/bin/env bash
# A game of gem (GEM_GAME names another): makes the rows if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/gem/test.parquet ] || python -m recipes.gem.prepare --out data/gem
exec verl-like train recipes/gem/grpo.yaml "$@"
