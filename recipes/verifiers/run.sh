#!/usr/bin/env bash
# A taskset of verifiers: makes the rows if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PWD/data/verifiers/venv/bin:$PATH  # verifiers finds its uv there
[ -f data/verifiers/test.parquet ] || python -m recipes.verifiers.prepare --out data/verifiers
exec verl-like train recipes/verifiers/grpo.yaml "$@"
