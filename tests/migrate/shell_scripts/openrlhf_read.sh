set -x

BATCH=128
read -r -d '' training_commands <<EOF
openrlhf.cli.train_ppo \
   --pretrain OpenRLHF/Llama-3-8b-sft-mixture \
   --save_path $HOME/checkpoint \
   --train_batch_size ${BATCH} \
   --save_steps -1 \
   --bf16
EOF
     # --use_wandb [TOKEN]

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
