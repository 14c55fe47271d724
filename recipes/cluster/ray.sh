#!/usr/bin/env bash
# Start Ray on your own machines: run the script on each, then the training on the head.
#
#   head:         recipes/cluster/ray.sh head
#   every other:  recipes/cluster/ray.sh worker HEAD_ADDRESS
#   head:         verl-like train RECIPE.yaml cluster.address=auto cluster.num_nodes=N
#   everywhere:   recipes/cluster/ray.sh stop
#
# PORT (6379) is the head's. VENV is the folder of the environment (.venv next to the Makefile). DRY_RUN=1 only prints.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
ray=${VENV:-$here/.venv}/bin/ray
port=${PORT:-6379}

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2
  exit 2
}

run() {
  if [ -n "${DRY_RUN:-}" ]; then
    echo "$*"
  else
    "$@"
  fi
}

case "${1:-}" in
  head)
    run "$ray" start --head --port "$port" --include-dashboard=false --disable-usage-stats
    ;;
  worker)
    [ $# -eq 2 ] || usage
    run "$ray" start --address "$2:$port" --disable-usage-stats
    ;;
  stop)
    run "$ray" stop --grace-period 15
    ;;
  *)
    usage
    ;;
esac
