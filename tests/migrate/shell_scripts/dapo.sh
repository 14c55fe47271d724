#!/usr/bin/env bash
set -xeuo pipefail

project='DAPO'
name="${project,,}-$(( 7 ))b"

clip_low=0.2
clip_high=0.28
prompt=$((1024 * 2))
response=$((1024 * 20))
buffer_on=True
buffer=$((1024 * 4)) # tokens

RAY_ADDRESS=${RAY_ADDRESS:-"http://localhost:8265"}
WORK=${WORK:-"${HOME}/verl"}
RUNTIME_ENV=${RUNTIME_ENV:-"${WORK}/trainer/runtime_env.yaml"}
CKPTS=${CKPTS:-"${WORK}/ckpts/${project}/${name}"}
TEST_FREQ=${TEST_FREQ:--1}

if [ "${SAVE_HF:-False}" = "True" ]; then
    contents="['model','hf_model']"
else
    contents="['model']"
fi

ray job submit --no-wait --runtime-env="${RUNTIME_ENV}" \
    --address "${RAY_ADDRESS}" \
    --working-dir "${WORK}" \
    -- python3 -m recipe.dapo.main_dapo \
    data.max_prompt_length=${prompt} \
    data.max_response_length=${response} \
    actor_rollout_ref.actor.clip_ratio_low=${clip_low} \
    actor_rollout_ref.actor.clip_ratio_high=${clip_high} \
    actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$((prompt + response)) \
    actor_rollout_ref.actor.checkpoint.contents=${contents} \
    +reward_model.reward_kwargs.overlong_buffer_cfg.enable=${buffer_on} \
    +reward_model.reward_kwargs.overlong_buffer_cfg.len=${buffer} \
    +actor_rollout_ref.model.override_config.attention_dropout=0. \
    actor_rollout_ref.rollout.top_k="-1" \
    trainer.test_freq=${TEST_FREQ} \
    trainer.default_local_dir="${CKPTS}"
