#!/bin/bash
# Several runs from one script: its own options, a function, loops.
EXTRA=()
SEEDS="1 2"
while [[ $# -gt 0 ]]; do
    case "$1" in
        --model) MODEL="$2"; shift 2 ;;
        --seeds=*) SEEDS="${1#*=}"; shift ;;
        --) shift; EXTRA+=("$@"); break ;;
        *) EXTRA+=("$1"); shift ;;
    esac
done
: "${MODEL:=Qwen/Qwen3-4B}"

launch() {
    local lr=$1 seed=$2
    shift 2
    python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path="$MODEL" \
        actor_rollout_ref.actor.optim.lr=$lr trainer.seed=${seed} "$@" || exit 1
}

for lr in 1e-6 {3,5}e-6; do
    for seed in $SEEDS; do
        if [ "$lr" = 3e-6 ] && [ $seed -gt 1 ]; then continue; fi
        launch $lr $seed trainer.experiment_name="lr${lr}_s$seed" "${EXTRA[@]}"
    done
done
for ((i = 0; i < 2; i++)); do ray start --address "node$i:6379"; done
