#!/usr/bin/env bash
# Makes data, model and warm start if they are missing; then a policy learns from itself with hints. Arguments are
# overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
exec python -m recipes.hints.train "$@"
