#!/usr/bin/env python3
"""Prints, as JSON, what the ceilings need to know of a GGUF file.

gguf_facts.py MODEL.gguf

linear_flop_per_token   of the matrices of all layers, a multiplication and an addition for each weight; no LM head
bytes_per_decoded_token what the file holds of everything that one decode step reads: all layers and the output matrix
                        (the embedding where it is tied), not the embedding table, not the KV
kv_bytes_per_token      at two bytes a number
"""

import json, sys
from gguf import GGUFReader

if len(sys.argv) != 2:
    sys.exit(__doc__)
reader = GGUFReader(sys.argv[1])
architecture = reader.fields["general.architecture"].contents()


def field(key):
    found = reader.fields.get(f"{architecture}.{key}")
    return found.contents() if found else None


layers = [t for t in reader.tensors if t.name.startswith("blk.")]
tied = not any(t.name == "output.weight" for t in reader.tensors)
outer = [t for t in reader.tensors if not t.name.startswith("blk.") and (tied or t.name != "token_embd.weight")]
types = {}
for tensor in reader.tensors:
    types[tensor.tensor_type.name] = types.get(tensor.tensor_type.name, 0) + int(tensor.n_bytes)
heads, width = field("attention.head_count"), field("embedding_length")
head_width = field("attention.key_length") or width // heads
print(
    json.dumps(
        {
            "architecture": architecture,
            "layers": field("block_count"),
            "heads": heads,
            "linear_flop_per_token": sum(2 * int(t.n_elements) for t in layers if len(t.shape) == 2),
            "bytes_per_decoded_token": sum(int(t.n_bytes) for t in layers + outer),
            "kv_bytes_per_token": field("block_count") * field("attention.head_count_kv") * head_width * 2 * 2,
            "bytes_by_type": dict(sorted(types.items(), key=lambda x: -x[1])),
        }
    )
)
