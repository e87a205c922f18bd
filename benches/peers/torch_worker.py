#!/usr/bin/env python3
"""Measures PyTorch for ./run: loads one Hugging Face folder, then answers one command a line with one JSON line.

  torch_worker.py FOLDER bf16|f32 THREADS L13H13,L16H7

  prefill N SEED              one prompt of N tokens, logits of the last
  decode BATCH CONTEXT NEW SEED
                              BATCH sequences of CONTEXT tokens, then NEW greedy steps of all of them; the steps are
                              timed. The KV of the contexts is kept for the next command that is the same
  score CHUNKS N SEED TAIL    a scored batch in the paper's two calls: the query-free input, then the query-conditioned
                              one on the KV of the first; query and key vectors taken from the chosen layers; entropy

What is generous to this peer: it runs no LM head when it scores, reads one position a call, and shares the prefix.
"""

import json, math, sys, time
import torch
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

FIRST_PROMPT = 64
HEAD, AROUND_CHUNK, TAIL = 40, 4, 25  # the layout of a scored batch, as in ../common
captured, wanted = {}, set()  # layer -> (query at the last position, keys); layers to capture


def attention(module, query, key, value, mask, **kw):
    """SDPA, and for the wanted layers the rotated query of the last position and all keys."""
    if module.layer_idx in wanted:
        captured[module.layer_idx] = (query[0, :, -1].clone(), key[0])
    return sdpa_attention_forward(module, query, key, value, mask, **kw)


AttentionInterface.register("qrae_capture", attention)
AttentionMaskInterface.register("qrae_capture", sdpa_mask)


def token_rows(n, *seeds):
    """Tokens 0 to n of each sequence; every peer computes the same ones."""
    return torch.tensor([[1000 + (i * 7919 + seed * 104729) % 40000 for i in range(n)] for seed in seeds])


class Worker:
    def __init__(self, folder, dtype, heads):
        self.model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, attn_implementation="qrae_capture"
        ).eval()
        self.heads = heads
        self.kept = {}  # (batch, context, seed) -> the next tokens, KV; one of them

    def step(self, ids, cache=None):
        out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return out.logits[:, -1].argmax(-1), out.past_key_values

    def prefill(self, n, seed):
        ids = token_rows(n, seed)
        begin = time.perf_counter()
        token, _ = self.step(ids)
        return {"seconds": time.perf_counter() - begin, "tokens": n, "next": token.item()}

    def context(self, *wanted):
        """The tokens after `batch` contexts, and their KV, computed unless it is still there."""
        batch, context, seed = wanted
        if wanted not in self.kept:
            self.kept.clear()
            self.kept[wanted] = self.step(token_rows(context, *range(seed, seed + batch)))
        token, cache = self.kept[wanted]
        if added := cache.get_seq_length() - context:
            cache.crop(-added)
        return token, cache

    def decode(self, batch, context, new, seed):
        token, cache = self.context(batch, context, seed)
        begin = time.perf_counter()
        for _ in range(new):
            token, cache = self.step(token[:, None], cache)
        return {"seconds": time.perf_counter() - begin, "tokens": batch * new}

    def rows(self, candidates):
        """Attention of each head from the last position, restricted to the candidates: [heads, candidates]."""
        rows = []
        for layer, head in self.heads:
            query, keys = captured[layer]
            key = keys[head * keys.shape[0] // query.shape[0], candidates].float()
            rows.append(torch.softmax(key @ query[head].float() * query.shape[-1] ** -0.5, 0))
        return torch.stack(rows)

    def score(self, chunks, n, seed, tail):
        prefix, tail = token_rows(HEAD + chunks * (n + AROUND_CHUNK), seed), token_rows(TAIL, tail)
        begin = time.perf_counter()
        wanted.update(layer for layer, _ in self.heads)
        starts = [HEAD + i * (n + AROUND_CHUNK) for i in range(chunks)]
        candidates = torch.cat([torch.arange(a, a + n) for a in starts])
        cache = self.model.model(prefix, use_cache=True).past_key_values
        control = self.rows(candidates)
        self.model.model(tail, past_key_values=cache, use_cache=True)
        response = (self.rows(candidates) - control).clamp_min(0).double().reshape(len(self.heads), chunks, n)
        share = response / response.sum(-1, keepdim=True).clamp_min(1e-300)
        scores = (-torch.xlogy(share, share).sum(-1) / math.log(n)).mean(0).tolist()
        seconds = time.perf_counter() - begin
        wanted.clear()
        captured.clear()
        return {"seconds": seconds, "tokens": prefix.shape[1] + TAIL, "scores": scores}


def main():
    folder, dtype, threads, heads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    heads = [tuple(map(int, h[1:].split("H"))) for h in heads.split(",")]
    begin = time.perf_counter()
    worker = Worker(folder, {"bf16": torch.bfloat16, "f32": torch.float32}[dtype], heads)
    worker.prefill(FIRST_PROMPT, 1)
    computes = f"{dtype}, weights dequantised to {dtype}, {dtype} KV"
    print(json.dumps({"first_s": time.perf_counter() - begin, "computes": computes}), flush=True)
    for line in sys.stdin:
        command, *numbers = line.split()
        if command not in ("prefill", "decode", "score"):
            sys.exit(f"torch_worker: unknown command {line!r}")
        print(json.dumps(getattr(worker, command)(*map(int, numbers))), flush=True)


if __name__ == "__main__":
    with torch.no_grad():
        main()
