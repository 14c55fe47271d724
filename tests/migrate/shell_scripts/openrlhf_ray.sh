set -x
# ray start --head --num-gpus 8
SAVE="./ckpt/7b"

ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/openrlhf", "env_vars": {"A": "b c"}}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 \
   --colocate_all_models \
   --eps_clip_low_high 0.2 0.27 \
   --pretrain deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B \
   --save_path ${SAVE} \
   --ckpt_path "${SAVE}/ckpt" \
   --init_kl_coef 1e-4 \
   --prompt_data a/b,c/d \
   --packing_samples &> train.log &
wait

# --use_wandb {token} (don't)
