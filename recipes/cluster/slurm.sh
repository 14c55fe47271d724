#!/usr/bin/env bash
#SBATCH --job-name=verl_like
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
# One training over the nodes of a Slurm job:
#
#   sbatch --nodes=4 recipes/cluster/slurm.sh recipes/gsm8k/grpo.yaml rollout.n=16
#
# Ray runs on every node of the job and ends with it. Three minutes before the time limit, the run gets a signal to save
# and end. A job that was preempted or ran out of time is queued again with the same command, so it continues from the
# last checkpoint. The checkout, the models and trainer.output_dir must be on a file system that all nodes share.
#
# PORT (6379) is the head's. VENV is the folder of the environment (.venv in the folder of submission). DRY_RUN=1 only
# prints what would be run.
set -euo pipefail

cd "${SLURM_SUBMIT_DIR:-.}"
venv=${VENV:-$PWD/.venv}
port=${PORT:-6379}
[ $# -ge 1 ] || { echo "usage: sbatch recipes/cluster/slurm.sh RECIPE.yaml [key=value ...]" >&2; exit 2; }

mapfile -t nodes < <(scontrol show hostnames "${SLURM_JOB_NODELIST:?is set by Slurm: start this with sbatch}")
head=${nodes[0]}
servers=()

# serve NODE COMMAND...: run one task on the node until the job ends
serve() {
  local node=$1
  shift
  if [ -n "${DRY_RUN:-}" ]; then
    echo "on $node: $*"
  else
    srun --overlap --nodes=1 --ntasks=1 --nodelist "$node" "$@" &
    servers+=($!)
  fi
}

serve "$head" "$venv/bin/ray" start --head --node-ip-address "$head" --port "$port" \
  --include-dashboard=false --disable-usage-stats --block
for node in "${nodes[@]:1}"; do
  serve "$node" "$venv/bin/ray" start --address "$head:$port" --disable-usage-stats --block
done
trap 'kill ${servers[@]+"${servers[@]}"} 2>/dev/null || true' EXIT

train=("$venv/bin/verl-like" train "$@" "cluster.address=$head:$port" "cluster.num_nodes=${#nodes[@]}" trainer.grace_s=150)
if [ -n "${DRY_RUN:-}" ]; then
  echo "here: ${train[*]}"
  exit 0
fi
# Wait for the head, which the driver connects to. The driver itself waits for the other nodes (cluster.start_timeout_s).
for _ in $(seq 60); do
  "$venv/bin/ray" health-check --address "$head:$port" >/dev/null 2>&1 && break
  sleep 2
done

# The batch script and the driver run on the first node of the job. The script passes the signal on to the driver.
"${train[@]}" &
driver=$!
asked=""
trap 'asked=1; kill -TERM "$driver" 2>/dev/null || true' TERM
while :; do
  status=0
  wait "$driver" || status=$?
  if kill -0 "$driver" 2>/dev/null; then continue; fi  # the signal ended the wait, and the driver is saving
  # 127: the first wait returned the driver's status. Otherwise the signal ended it just as the driver exited.
  last=0
  wait "$driver" 2>/dev/null || last=$?
  [ "$last" -eq 127 ] || status=$last
  break
done
[ -z "$asked" ] || scontrol requeue "$SLURM_JOB_ID"
exit "$status"
