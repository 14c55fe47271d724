"""Keys of EasyR1's example configuration and of its dataclasses, listed here because no package index has EasyR1."""

ACTOR = """
global_batch_size micro_batch_size_per_device_for_update micro_batch_size_per_device_for_experience max_grad_norm
padding_free dynamic_batching ulysses_size ppo_epochs use_torch_compile loss_avg_mode
model.model_path model.tokenizer_path model.override_config model.enable_gradient_checkpointing model.trust_remote_code
model.freeze_vision_tower model.lora.rank model.lora.alpha model.lora.target_modules model.lora.exclude_modules
optim.lr optim.weight_decay optim.strategy optim.lr_warmup_ratio optim.lr_warmup_steps optim.min_lr_ratio
optim.lr_scheduler_type optim.betas
fsdp.enable_full_shard fsdp.enable_cpu_offload fsdp.enable_rank0_init offload.offload_params offload.offload_optimizer
"""
SECTIONS = {
    "data": """
        train_files val_files prompt_key answer_key image_key video_key image_dir video_fps max_prompt_length
        max_response_length rollout_batch_size mini_rollout_batch_size val_batch_size format_prompt
        override_chat_template shuffle seed min_pixels max_pixels filter_overlong_prompts
        filter_overlong_prompts_workers
    """,
    "algorithm": """
        adv_estimator disable_kl use_kl_loss kl_penalty kl_coef online_filtering filter_key filter_low filter_high gamma
        lam kl_type kl_horizon kl_target
    """,
    "worker.actor": f"{ACTOR} clip_ratio_low clip_ratio_high clip_ratio_dual loss_type tau_positive tau_negative",
    "worker.critic": f"{ACTOR} cliprange_value",
    "worker.ref": "fsdp.enable_full_shard fsdp.enable_cpu_offload fsdp.enable_rank0_init offload.offload_params",
    "worker.rollout": """
        n temperature top_p top_k seed dtype ignore_eos limit_images gpu_memory_utilization enforce_eager
        enable_chunked_prefill tensor_parallel_size max_model_len max_num_batched_tokens disable_tqdm
        val_override_config.temperature val_override_config.top_p val_override_config.n
    """,
    "worker.reward": "reward_function reward_function_kwargs skip_special_tokens num_cpus",
    "trainer": """
        total_epochs max_steps project_name experiment_name logger nnodes n_gpus_per_node max_try_make_batch val_freq
        val_before_train val_only val_generations_to_log save_freq save_limit save_model_only save_checkpoint_path
        load_checkpoint_path find_last_checkpoint critic_warmup ray_timeline
    """,
}

EASYR1_KEYS = tuple(f"{section}.{key}" for section, keys in SECTIONS.items() for key in keys.split())
