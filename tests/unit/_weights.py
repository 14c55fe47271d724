"""Weights without tensors, for folders that only have to look like a model's."""

NO_WEIGHTS = (2).to_bytes(8, "little") + b"{}"  # a whole safetensors file
