#!/usr/bin/env bash
# PPO with a critic on two data sets, in the manner of verl's examples.
set -x

train=$HOME/data/maths/train.parquet
extra=$HOME/data/words/train.parquet
files="['$train', '$extra']"
held_out="[\"$HOME/data/maths/test.parquet\"]"

export HYDRA_FULL_ERROR=1 NCCL_DEBUG=${NCCL_DEBUG:-WARN}
gpus=${GPUS:-8}
max_tokens=$(((1024 + 2048) * 2))

CUDA_VISIBLE_DEVICES=0,1 python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=gae \
    data.train_files="$files" \
    data.val_files="$held_out" \
    data.train_batch_size=$((gpus * 128)) \
    data.truncation='error' \
    actor_rollout_ref.model.path="${MODEL:-Qwen/Qwen2.5-3B}" \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=${max_tokens} \
    actor_rollout_ref.rollout.n=5\
    +actor_rollout_ref.model.override_config.attn_implementation=eager \
    ~critic.optim.betas \
    'critic.optim.betas=[0.9,0.95]' \
    trainer.logger='["console","wandb"]' \
    trainer.tags=['a','b'] \
    trainer.n_gpus_per_node="$gpus" \
    trainer.total_epochs=15 $@ 2>&1 | tee run.log
