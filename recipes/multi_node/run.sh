#!/usr/bin/env bash
# DAPO on NODES (2 or 4) nodes under Slurm: makes the data if they are missing, then submits the job. Arguments are
# overrides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH=${VENV:-$PWD/.venv}/bin:$PATH
nodes=${NODES:-2}
[ -f data/dapo/test.parquet ] || python -m recipes.math.prepare_dapo --out data/dapo
exec sbatch --nodes="$nodes" recipes/cluster/slurm.sh "recipes/multi_node/${nodes}x8.yaml" "$@"
