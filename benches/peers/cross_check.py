"""What llama.cpp's own bench programs say, beside what our worker measures of it."""

import json

import machine
from setup import say


def cross_check(a, cache):
    """`a`: the arguments of ../run; builds the programs, runs each once."""
    bin_folder = cache.llama(("llama-bench", "llama-batched-bench"))
    say("running llama-bench and llama-batched-bench …")
    bench = machine.output(
        bin_folder / "llama-bench",
        "-m",
        a.model,
        "-t",
        str(a.threads),
        "-p",
        "1024",
        "-n",
        str(a.steps),
        "-r",
        str(a.reps),
        "-o",
        "json",
    )
    found = {
        f"llama-bench {'prefill' if r['n_prompt'] else 'decode'} {r['n_prompt'] or r['n_gen']}": f"{r['avg_ts']:.1f} tokens/s"
        for r in json.loads(bench)
    }
    batched = machine.output(
        bin_folder / "llama-batched-bench",
        "-m",
        a.model,
        "-t",
        str(a.threads),
        "-c",
        "2048",
        "-npp",
        "32",
        "-ntg",
        str(a.steps),
        "-npl",
        "8",
        "--output-format",
        "jsonl",
    )
    for line in batched.splitlines():
        if line.startswith("{"):
            found["llama-batched-bench decode, batch 8"] = f"{json.loads(line)['speed_tg']:.1f} tokens/s"
    return found
