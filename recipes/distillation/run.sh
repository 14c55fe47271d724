#!/usr/bin/env bash
# On-policy distillation on sums from the model of the arithmetic recipe, which is trained if it is missing.
# Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
exec python -m recipes.distillation.train "$@"
