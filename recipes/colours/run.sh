#!/usr/bin/env bash
# GRPO on pictures: makes data and model if they are missing, then trains. Arguments are overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
exec python -m recipes.colours.train "$@"
