"""A model of a few thousand parameters with random weights, and what transformers says about its responses."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen3Config

from verl_like.backends.base import Request, Sampling

VOCAB_SIZE = 64
END_ID = 1


def save_model(folder, *, family, tied):
    """A folder with config, random weights and a tokenizer of single characters."""
    symbols = ["<pad>", "<end>", "<unk>", *"0123456789+-*/=?.,:; ", *"abcdefghijklmnopqrstuvwxyz", *"ABCDEFGHIJKLMN"]
    vocab = {symbol: index for index, symbol in enumerate(symbols)}
    assert len(vocab) == VOCAB_SIZE
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    ).save_pretrained(folder)
    config_class = {"qwen2": Qwen2Config, "qwen3": Qwen3Config}[family]
    config = config_class(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=tied,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=END_ID,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def weights_of(model, *, seed):
    """Draw the model's weights anew, wide enough that its predictions are far from uniform; name -> numpy array."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(generator=generator).mul_(0.15).add_(1.0 if "norm" in name else 0.0)
    return {name: tensor.numpy() for name, tensor in model.state_dict().items()}


def requests(number, *, sampling=None):
    """Prompts of 3, 4, 5, ... tokens with far apart seeds."""
    return [
        Request(
            request_id=f"r{i}",
            prompt_ids=[3 + (7 * i + 5 * k) % 50 for k in range(3 + i)],
            seed=1_000_003 * (i + 1),
            sampling=sampling or Sampling(max_tokens=8),
        )
        for i in range(number)
    ]


@torch.no_grad()
def hf_log_probs(model, request, response_ids, *, candidates=None):
    """[T]: the response's log-probs in one float32 forward of the whole sequence, at the request's sampling, or over
    these candidates of each token.
    """
    sampling = request.sampling
    logits = model(torch.tensor([request.prompt_ids + response_ids])).logits[0, len(request.prompt_ids) - 1 : -1]
    logits = logits / (sampling.temperature or 1.0)
    if candidates is not None:
        kept = [row[torch.from_numpy(ids)] for row, ids in zip(logits, candidates, strict=True)]
        own = [ids.tolist().index(token) for ids, token in zip(candidates, response_ids, strict=True)]
        return torch.stack([row.log_softmax(-1)[index] for row, index in zip(kept, own, strict=True)])
    if sampling.top_k > 0:
        logits = logits.masked_fill(logits < logits.topk(sampling.top_k).values[:, -1:], -torch.inf)
    if sampling.top_p < 1:
        descending, order = logits.sort(descending=True)
        mass_before = descending.softmax(-1).cumsum(-1) - descending.softmax(-1)
        outside = torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, mass_before >= sampling.top_p)
        logits = logits.masked_fill(outside, -torch.inf)
    return logits.log_softmax(-1).gather(1, torch.tensor(response_ids)[:, None])[:, 0]
