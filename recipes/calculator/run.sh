#!/usr/bin/env bash
# Makes data, model and warm start if they are missing, then trains with GRPO. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
exec python -m recipes.calculator.train "$@"
