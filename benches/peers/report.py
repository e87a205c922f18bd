"""Makes the Markdown report of the measurements. Medians, with the smallest and largest in brackets."""

from statistics import median

from cases import CASES, FEW, HEADLINE, LONG, MIXED
from growth import growth
from tables import rates, spread, table


class Report:
    def __init__(self, run):
        """`run` is what is also written as JSON."""
        self.run, self.samples, self.machine, self.facts = run, run["samples"], run["machine"], run["model"]
        self.names = [p["name"] for p in run["peers"]]

    def text(self):
        parts = [
            self.head(),
            self.peers(),
            self.main(),
            growth(self.names, self.samples),
            self.scoring(),
            self.mixed(),
            self.loading(),
            self.against(),
            self.ceilings(),
            self.notes(),
        ]
        return "\n".join(part for part in parts if part)

    def head(self):
        m, run = self.machine, self.run
        others = f"{100 * run['others_share']:.0f} % of the machine's CPU time went to other programs meanwhile"
        busy = " **That is not an idle machine: do not quote these numbers.**" if run["others_share"] > 0.03 else ""
        return (
            f"# {run['model_name']}, {run['threads']} threads, {m['date']}\n\n"
            f"{m['cpu']}, {m['usable_cores']} of {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GiB"
            f"{', virtual machine' if m['virtual'] else ''}; {' '.join(m['flags'])}; Linux {m['kernel']}. qrae {m['commit']}, "
            f"{m['rustc']}.\nLoad before the run {m['load_before']:.2f}; {others}.{busy}\n"
            f"Repetitions: {run['reps']}{self.few()}, peers in turn within each; medians (smallest – largest).\n"
            f"Command: `{run['command']}`\n"
        )

    def few(self):
        """What is said of prompts that are repeated less."""
        long = any(c.tokens > LONG and c.key in self.samples for c in CASES)
        n = min(self.run["reps"], FEW)
        return f" ({n} and no warm-up for prompts of more than {LONG:,} tokens)" if long else ""

    def peers(self):
        return table(
            ["peer", "version", "computes in"], [[p["name"], p["version"], p["computes"]] for p in self.run["peers"]]
        )

    def main(self):
        """Rates of all peers, and by how many times qrae is faster than each."""
        rows = []
        for case in HEADLINE:
            taken = self.samples.get(case.key)
            if not taken:
                continue
            rate = {n: median(rates(taken[n])) for n in self.names if n in taken}
            if case.kind == "scored":
                cells = [spread([s["seconds"] for s in taken[n]], 2) + " s" for n in rate]
            else:
                cells = [spread(rates(taken[n])) for n in rate]
            others = {n: r for n, r in rate.items() if n != "qrae"}
            ratios = [f"{rate['qrae'] / r:.2f}" for r in others.values()]
            if others:
                name = max(others, key=others.get)
                ratios.append(f"**{rate['qrae'] / others[name]:.2f}** ({name})")
            rows.append([case.title, *cells, *ratios])
        if not rows:
            return ""
        others = [n for n in self.names if n != "qrae"]
        header = [
            "tokens/s; seconds where said",
            *self.names,
            *[f"qrae ÷ {n}" for n in others],
            *["qrae ÷ best peer"] * bool(others),
        ]
        return "## Beside the peers\n\nRatios are of rates: above 1 qrae is faster.\n\n" + table(header, rows)

    def scoring(self):
        rows = []
        for case in HEADLINE:
            if again := self.samples.get(f"second-{case.key}", {}).get("qrae"):
                rows.append(
                    [
                        f"second query, {case.title.split(',')[0]}",
                        spread([s["seconds"] for s in again], 3) + " s",
                        spread([100 * s["of_cold"] for s in again]) + " % of cold",
                    ]
                )
        for name, what in (
            ("plain", "plain prefill of the tokens of 5 × 512"),
            ("captured", "the same with capture, every layer"),
            ("early", "the same with capture and early exit"),
        ):
            if taken := self.samples.get(f"capture, {name}", {}).get("qrae"):
                of_plain = (
                    "" if name == "plain" else spread([100 * (s["of_plain"] - 1) for s in taken]) + " % over plain"
                )
                rows.append([what, spread([s["seconds"] for s in taken], 3) + " s", of_plain])
        if not rows:
            return ""
        depth = f"Heads {self.run['heads']} of a model of {self.facts['layers']} layers.\n\n"
        return "## Scoring, qrae alone\n\n" + depth + table(["work", "time", "share"], rows)

    def mixed(self):
        taken = self.samples.get("mixed", {}).get("qrae")
        if not taken:
            return ""
        chats, _, _, chunks, n = MIXED
        of = lambda key, value: [value(s[key]) for s in taken]
        lines = [
            (f"between two tokens of a chat, {what}", "chats", lambda c, key=key: 1000 * c[key], 0, " ms")
            for what, key in (("median", "median"), ("95 of 100 below", "p95"), ("longest", "max"))
        ]
        lines.append((f"decode, {chats} chats together", "chats", lambda c: c["tokens"] / c["seconds"], 1, " tokens/s"))
        lines.append((f"a scored batch of {chunks} × {n}, cold", "scored", median, 2, " s"))
        rows = []
        for what, key, value, digits, unit in lines:
            alone, beside = of(f"{key}_alone", value), of(f"{key}_beside", value)
            ratio = median(b / a for a, b in zip(alone, beside))
            rows.append([what, spread(alone, digits) + unit, spread(beside, digits) + unit, f"{ratio:.2f}"])
        return (
            "## Mixed load, qrae alone\n\n"
            f"{chats} sequences decode without end while scored batches arrive, each when the one before is done. While something "
            f"decodes, a step computes {taken[0]['prefill_beside_decode']} tokens of prompts at most. Times are the receiver's, through the engine "
            "in process, without HTTP. The peers are not compared: llama.cpp mixes prompts with decoding in its HTTP server only, "
            "PyTorch not at all, so a scheduler of ours would be measured; and llama.cpp computes no scores.\n\n"
            + table(["", "alone", "together", "together ÷ alone"], rows)
        )

    def loading(self):
        rows, file = [], self.facts["file_bytes"]
        for what in ("first token", "first score"):
            for name, taken in self.samples.get(f"load, {what}", {}).items():
                peak = max(s["peak_bytes"] for s in taken)
                after = taken[0].get("peak_after_scoring_bytes")
                rows.append(
                    [
                        f"{name}, {what}",
                        spread([s["seconds"] for s in taken], 2),
                        spread([s["inside"] for s in taken], 2),
                        f"{peak / 1e6:,.0f} MB ({peak / file:.2f} ×)",
                        f"{after / 1e6:,.0f} MB ({after / file:.2f} ×)" if after else "",
                    ]
                )
        if not rows:
            return ""
        kv = self.facts["kv_bytes_per_token"] * self.run["kv_tokens"] / 1e6
        return (
            f"## Load and memory\n\nFresh processes, warm disk, a prompt of 64 tokens. Wall time counts from the start of the process; "
            f"inside, the work after the program's own start (for PyTorch: after its imports). Peaks are VmHWM, mapped file pages "
            f"included; × is times the GGUF file ({file / 1e6:,.0f} MB). KV room: {self.run['kv_tokens']:,} tokens, {kv:,.0f} MB at two "
            f"bytes a number (PyTorch keeps what it needs).\n\n"
            + table(["", "wall, s", "inside, s", "peak then", "peak after a scored 5 × 512"], rows)
        )

    def ceiling(self, *kinds):
        """The best rate of all threads among these kinds, in units of 1e9."""
        found = [c["rate"] for c in self.run["ceilings"] if c["what"] in kinds and c["threads"] == self.run["threads"]]
        return max(found, default=None)

    def against(self):
        bf16, int8, read = self.ceiling("f32", "bf16"), self.ceiling("f32", "bf16", "int8"), self.ceiling("read")
        if not read:
            return ""
        rows, share = [], lambda value, top: f"{100 * value / top:.0f} %" if top else "–"
        for case in HEADLINE:
            for name in self.names if case.kind in ("prefill", "decode") else ():
                taken = self.samples.get(case.key, {}).get(name)
                if not taken:
                    continue
                rate = median(rates(taken))
                gflop, steps = rate * self.facts["linear_flop_per_token"] / 1e9, rate / int(case.key.split("-")[1])
                gbyte = steps * self.facts["bytes_per_decoded_token"] / 1e9
                rows.append(
                    [case.title, name, f"{gflop:,.0f} G/s", share(gflop, bf16), share(gflop, int8)]
                    + ([f"{gbyte:.1f} GB/s", share(gbyte, read)] if case.kind == "decode" else ["", ""])
                )
        header = ["work", "peer", "linear layers", "of bf16 ceiling", "of int8 ceiling", "weights", "of read ceiling"]
        return (
            ""
            if not rows
            else "## Against the ceilings\n\n"
            "Linear layers: two operations a weight of every layer, no attention, no LM head. Weights: the bytes *the file* has for one "
            "step, times steps a second; so the share says how near a peer is to reading the file's bytes once a step, whatever "
            "precision it holds them in. Ceilings are those of all threads; where there is no bf16 or int8 unit, the faster "
            "of what there is.\n\n" + table(header, rows)
        )

    def ceilings(self):
        if not self.run["ceilings"]:
            return ""
        keys = list(dict.fromkeys((c["what"], c["isa"], c["unit"]) for c in self.run["ceilings"]))
        find = lambda key, n: next(
            f"{c['rate']:,.1f}"
            for c in self.run["ceilings"]
            if (c["what"], c["isa"], c["unit"]) == key and c["threads"] == n
        )
        counts = sorted({1, self.run["threads"]})
        rows = [[f"{what}, {isa}", unit, *[find((what, isa, unit), n) for n in counts]] for what, isa, unit in keys]
        return "## Ceilings\n\nBest of measurements before and after the matrix.\n\n" + table(
            ["what", "unit", *[f"{n} thread{'s' * (n > 1)}" for n in counts]], rows
        )

    def notes(self):
        agree = self.agreement()
        return (
            "## What is compared\n\n"
            "- Token ids are the same for all; every repetition has new ones (not a decode after a long context, which is computed once).\n"
            "- Decode: prompts of 32 tokens where nothing is said, greedy; the prompt is not timed. For batch 8 on qrae, the time in which "
            "all eight decode.\n"
            "- Scored batch: qrae scores against a null query, so it computes a second tail of 25 tokens, and leaves out the layers above "
            "its deepest head; PyTorch makes the paper's two calls, the second on the KV of the first, all layers, no LM head; "
            "llama.cpp merely prefills the tokens.\n"
            "- llama.cpp runs with the settings of its own llama-bench (micro-batch 512, repacked weights, polling threads).\n"
            + (f"- After the prefills, the peers' next tokens are qrae's in {agree}.\n" if agree else "")
            + "".join(f"- Cross-check, {k}: {v}\n" for k, v in self.run.get("cross_check", {}).items())
        )

    def agreement(self):
        """Whether the peers compute the same: how often their most likely next token is qrae's."""
        parts = []
        for name in self.names[1:]:
            pairs = [
                (a["next"], b["next"])
                for case in CASES
                if case.kind == "prefill" and name in self.samples.get(case.key, {})
                for a, b in zip(self.samples[case.key]["qrae"], self.samples[case.key][name])
            ]
            if pairs:
                parts.append(f"{sum(a == b for a, b in pairs)} of {len(pairs)} cases ({name})")
        return ", ".join(parts)
