#!/usr/bin/env python3
"""Writes the weights of a GGUF file as a Hugging Face folder that PyTorch loads.

  dequantise.py MODEL.gguf FOLDER bf16|f32

Only config and weights: the peers are given token ids. bf16 rounds the dequantised values once.
"""

import os, sys
import torch
from transformers import AutoModelForCausalLM

if len(sys.argv) != 4 or sys.argv[3] not in ("bf16", "f32"):
    sys.exit(__doc__)
path, folder, dtype = sys.argv[1:]
where, name = os.path.split(os.path.abspath(path))
dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
read = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
# a model that came from GGUF refuses to be saved, so its weights go into one that did not
config = read.config
if hasattr(config, "quantization_config"):
    del config.quantization_config
plain = AutoModelForCausalLM.from_config(config, dtype=dtype)
plain.load_state_dict(read.state_dict())
plain.save_pretrained(folder)
