#!/usr/bin/env python3
"""Makes the golden checkpoints of this folder: tiny random decoders and what PyTorch computes on them.

  make.py            (needs torch, transformers, safetensors, gguf; versions in PROVENANCE.md)

The weights are rounded to bf16, saved, and LOADED AGAIN in f32 for the forward pass: rounding the live module instead
would also round its rotary frequencies, which no checkpoint holds.
"""
import hashlib, json, math, pathlib
import gguf, numpy as np, torch, transformers as T
from safetensors.torch import save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).parent
P0, PQ, SPANS = 80, 96, [(5, 20), (22, 23), (24, 60), (61, 80)]
SIZES = dict(vocab_size=320, hidden_size=96, intermediate_size=96, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.2, tie_word_embeddings=False)
CONFIGS = {
    "llama": lambda: T.LlamaConfig(**SIZES | dict(head_dim=16, tie_word_embeddings=True)),
    "llama-bias": lambda: T.LlamaConfig(**SIZES | dict(head_dim=16), attention_bias=True),
    "qwen2": lambda: T.Qwen2Config(**SIZES),
    "qwen3": lambda: T.Qwen3Config(**SIZES | dict(hidden_size=64), head_dim=24),
}


def entropies(rows):
    """Design section 1 on one head: rows [2, tokens] at (p0, pq) -> score of each span."""
    cand = torch.cat([torch.arange(a, b) for a, b in SPANS])
    control, conditioned = (rows[:, cand].double() / rows[:, cand].double().sum(-1, keepdim=True))
    out = []
    for r in torch.split((conditioned - control).clamp_min(0), [b - a for a, b in SPANS]):
        m, n = r.sum(), len(r)
        p = r[r > 0] / m if m > 0 else r[:0]
        out.append(float(-(p * p.log()).sum() / math.log(n)) if n > 1 and m > 0 else 0.0)
    return out


@torch.no_grad()
def checkpoint(name):
    torch.manual_seed(0)
    folder = HERE / name
    model = T.AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation="eager").eval()
    for key, p in model.named_parameters():
        if key.endswith("bias"): torch.nn.init.normal_(p, std=0.3)
        if "norm" in key: torch.nn.init.normal_(p, mean=1.0, std=0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = T.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(3, SIZES["vocab_size"], (97,))
    out = model(ids[None], output_attentions=True)
    rows = torch.stack([a[0][:, [P0, PQ]] for a in out.attentions])  # [layers, heads, 2, tokens]
    save_file({"rows": rows.contiguous(), "logits": out.logits[0].contiguous()}, folder / "expected.safetensors")
    case = {"ids": ids.tolist(), "spans": SPANS, "p0": P0, "pq": PQ, "entropy_scores": [[entropies(h) for h in layer] for layer in rows]}
    (folder / "case.json").write_text(json.dumps(case) + "\n")


def rope():
    cases = []
    for dim, theta, p in [
        (128, 1e6, dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)),
        (64, 1e4, dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=4096, beta_fast=24.0, beta_slow=2.0, attention_factor=1.25)),
        (64, 1e4, dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=4096, truncate=False)),
        (64, 1e4, dict(rope_type="yarn", factor=40.0, original_max_position_embeddings=4096, mscale=1.0, mscale_all_dim=0.8)),
        (128, 5e5, dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)),
        (64, 1e4, dict(rope_type="linear", factor=2.5)),
        (64, 1e5, dict(rope_type="default")),
    ]:
        config = T.LlamaConfig(hidden_size=2 * dim, num_attention_heads=2, head_dim=dim, max_position_embeddings=4096)
        config.rope_parameters = dict(rope_theta=theta, **p)
        if p["rope_type"] == "default":
            from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
            inv_freq, factor = LlamaRotaryEmbedding(config).inv_freq, 1.0
        else:
            inv_freq, factor = ROPE_INIT_FUNCTIONS[p["rope_type"]](config, "cpu")
        cases.append(dict(head_dim=dim, rope_theta=theta, rope_parameters=p, inv_freq=inv_freq.tolist(), attention_factor=float(factor)))
    (HERE / "rope.json").write_text(json.dumps(dict(cases=cases)) + "\n")


def tensor_types():
    """types.gguf: for every tensor type random blocks, and beside them what gguf-py dequantises them to, in F32."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(HERE / "types.gguf"), "none")
    for name in "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K".split():
        kind = gguf.GGMLQuantizationType[name]
        values, size = gguf.GGML_QUANT_SIZES[kind]
        if name in ("F32", "F16", "BF16"):
            data = gguf.quants.quantize(rng.standard_normal((2, 512), dtype=np.float32), kind)
        else:
            data = rng.integers(0, 256, (2, 512 // values * size), dtype=np.uint8)
            # block scales are f16: keep them small and finite
            for offset in {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(name, (0,)):
                blocks = data.reshape(-1, size)
                blocks[:, offset:offset + 2] = rng.uniform(-0.05, 0.05, len(blocks)).astype(np.float16).view(np.uint8).reshape(-1, 2)
        writer.add_tensor(name, data, raw_dtype=kind)
        writer.add_tensor(f"{name}.expected", gguf.quants.dequantize(data, kind).astype(np.float32))
    writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()


for name in CONFIGS:
    checkpoint(name)
rope()
tensor_types()
files = sorted(p for p in HERE.rglob("*") if p.suffix in (".json", ".safetensors", ".gguf"))
(HERE / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(HERE)}\n" for p in files))
print("torch", torch.__version__, "transformers", T.__version__)
