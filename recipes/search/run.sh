#!/usr/bin/env bash
# Questions about documents: makes both if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
[ -f data/search/test.parquet ] || python -m recipes.search.prepare --out data/search
exec verl-like train recipes/search/grpo.yaml "$@"
