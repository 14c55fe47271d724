#!/bin/bash

usage() {
  cat <<EOF
It's a launch script.
  MODEL   "a model"
EOF
}
if [[ "${1:-}" == "help" || "${1:-}" == "-h" ]]; then
    usage
    exit 0
fi

set -x
export PYTHONUNBUFFERED=1

MODEL="${MODEL:-Qwen/Qwen2.5-VL-7B-Instruct}"  # or a local folder
SYSTEM_PROMPT="""Think first.
 Then answer in <answer> </answer>, e.g. \boxed{1}."""
slug="${MODEL##*/}"; slug="${slug//[^a-zA-Z0-9._-]/_}"

COMMON=(
  config=examples/config.yaml
  "worker.actor.model.model_path=${MODEL}"   # the policy
  data.train_files=hiyouga/geometry3k@train
)
[[ "${MODEL}" == *[Qq]wen3* ]] && COMMON+=(worker.rollout.enforce_eager=true)

python3 -m verl.trainer.main \
    "${COMMON[@]}" \
    data.system_prompt="${SYSTEM_PROMPT}" \
    worker.reward.reward_function=./examples/score.py:compute \
    trainer.experiment_name="${slug}_grpo" \
    "$@"
