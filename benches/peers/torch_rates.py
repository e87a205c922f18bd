#!/usr/bin/env python3
"""Prefill and decode rates of PyTorch, to set beside `cargo bench --bench serve`: same token ids, same shapes.

  torch_rates.py MODEL_FOLDER f32|bf16 [THREADS]     (needs torch and transformers)

MODEL_FOLDER is a Hugging Face folder with the weights that the bench ran on (for a GGUF file: dequantised).
"""
import statistics, sys, time
import torch
from transformers import AutoModelForCausalLM

REPEATS = 3
folder, dtype = sys.argv[1], {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2]]
torch.set_num_threads(int(sys.argv[3]) if len(sys.argv) > 3 else 2)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()


def tokens(n, seed):
    return torch.tensor([[1000 + (i * 7919 + seed * 104729) % 40000 for i in range(n)]])


@torch.no_grad()
def prefill(n, seed):
    begin = time.perf_counter()
    model(tokens(n, seed), use_cache=True, logits_to_keep=1)
    return time.perf_counter() - begin


@torch.no_grad()
def decode(n):
    out = model(tokens(32, 50), use_cache=True, logits_to_keep=1)
    cache, begin = out.past_key_values, time.perf_counter()
    for _ in range(n):
        out = model(out.logits[:, -1:].argmax(-1), past_key_values=cache, use_cache=True, logits_to_keep=1)
    return time.perf_counter() - begin


prefill(64, 0)
seconds = statistics.median(prefill(1024, i) for i in range(REPEATS))
print(f"{sys.argv[2]} prefill 1024: {seconds:.3f} s, {1024 / seconds:.1f} tokens/s")
seconds = statistics.median(decode(32) for _ in range(REPEATS))
print(f"{sys.argv[2]} decode, batch 1: {32 / seconds:.1f} tokens/s")
