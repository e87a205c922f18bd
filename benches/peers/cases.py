"""The matrix of measurements, and the order they are taken in: peers in turn within every repetition.

Every repetition has token ids of its own, the same for all peers, so no prefix cache helps where it should not. Before
the timed repetitions each case runs once untimed on each peer. All numbers are kept; report.py makes medians of them.
"""

from dataclasses import dataclass

from peer import Worker, warm_disk
from setup import say

HEAD_AND_TAIL, AROUND_CHUNK = 40 + 25, 4  # the layout of a scored batch, as in ../common


@dataclass
class Case:
    key: str
    title: str
    command: str  # {seed} is filled in
    kind: str  # prefill, decode, scored
    shape: tuple = ()


CASES = [
    Case("prefill-1024", "prefill, 1,024 tokens", "prefill 1024 {seed}", "prefill"),
    Case("prefill-4096", "prefill, 4,096 tokens", "prefill 4096 {seed}", "prefill"),
    Case("decode-1", "decode, batch 1", "decode 1 {steps} {seed}", "decode"),
    Case("decode-8", "decode, batch 8", "decode 8 {steps} {seed}", "decode"),
    Case("scored-5x512", "scored batch 5 × 512, cold", "", "scored", (5, 512)),
    Case("scored-10x256", "scored batch 10 × 256, cold", "", "scored", (10, 256)),
]
# measured on qrae alone, or in processes of their own
OTHERS = {
    "second": "a second query over the same chunks (with the scored cases)",
    "capture": "capture overhead, gain of early exit",
    "load": "load to first token, peak memory",
    "ceilings": "what the machine can do",
}


class Matrix:
    """Takes the measurements; `samples[case][peer]` is a list of {seconds, tokens, …}."""

    def __init__(self, peers, reps, steps, log, wanted):
        self.peers, self.reps, self.steps, self.log, self.wanted = peers, reps, steps, log, wanted
        self.samples, self.seed = {}, 100

    def next_seed(self):
        self.seed += 10  # a decode of several sequences uses as many seeds
        return self.seed

    def keep(self, case, peer, sample):
        self.samples.setdefault(case, {}).setdefault(peer, []).append(sample)

    def turns(self, items, rep):
        """The peers, beginning with another one each time."""
        at = rep % len(items)
        return items[at:] + items[:at]

    def once(self, case, worker, seed, keep):
        """One case on one peer."""
        if case.kind != "scored":
            sample = worker.ask(case.command.format(seed=seed, steps=self.steps))
        else:
            sample = worker.score(*case.shape, seed, seed + 1)
        if keep:
            self.keep(case.key, worker.peer.name, sample)
        if case.kind == "scored" and worker.peer.name == "qrae" and "second" in self.wanted:
            again = worker.score(*case.shape, seed, seed + 2)
            if keep:
                self.keep(f"second-{case.key}", "qrae", again | {"of_cold": again["seconds"] / sample["seconds"]})
        rate, note = sample["tokens"] / sample["seconds"], "" if keep else " (warm-up)"
        say(f"  {case.title}: {worker.peer.name} {rate:.1f} tokens/s{note}")

    def main(self):
        cases = [c for c in CASES if c.key in self.wanted]
        if not cases:
            return
        workers = [self.start(peer) for peer in self.peers]
        for case in cases:
            for rep in range(-1, self.reps):
                seed = self.next_seed()
                for worker in self.turns(workers, rep):
                    self.once(case, worker, seed, keep=rep >= 0)
        for worker in workers:
            worker.close()

    def start(self, peer, command=None):
        say(f"starting {peer.name} …")
        return Worker(peer, self.log(peer), command)

    def load(self, score_command):
        """Fresh processes: time to the first token of a prompt of 64, peak memory then and after a scored batch."""
        if "load" not in self.wanted:
            return
        warm_disk(self.peers)
        starts = [("first token", peer, None) for peer in self.peers]
        starts += [("first score", peer, score_command) for peer in self.peers if peer.name == "qrae"]
        for rep in range(self.reps):
            for what, peer, command in self.turns(starts, rep):
                with self.start(peer, command) as worker:
                    sample = {"seconds": worker.first_wall, "inside": worker.first, "peak_bytes": worker.peak_bytes()}
                    if rep == 0 and what == "first token":
                        worker.score(5, 512, self.next_seed(), 1)
                        sample["peak_after_scoring_bytes"] = worker.peak_bytes()
                self.keep(f"load, {what}", peer.name, sample)
                say(f"  {what}: {peer.name} {sample['seconds']:.2f} s, peak {sample['peak_bytes'] / 1e6:.0f} MB")

    def capture(self, qrae, whole_command):
        """On qrae: a plain prefill, the same with capture, the same with early exit, in turn."""
        if "capture" not in self.wanted:
            return
        tokens = HEAD_AND_TAIL + 5 * (512 + AROUND_CHUNK)
        with self.start(qrae, whole_command) as whole, self.start(qrae) as early:
            runs = [
                ("plain", lambda s: whole.ask(f"prefill {tokens} {s}")),
                ("captured", lambda s: whole.ask(f"score 5 512 {s} 1 free")),
                ("early", lambda s: early.ask(f"score 5 512 {s} 1 free")),
            ]
            for rep in range(-1, self.reps):
                taken = {name: run(self.next_seed()) for name, run in self.turns(runs, rep)}
                for name, sample in taken.items() if rep >= 0 else ():
                    of_plain = sample["seconds"] / taken["plain"]["seconds"]
                    self.keep(f"capture, {name}", "qrae", sample | {"of_plain": of_plain})
                say("  capture: " + ", ".join(f"{n} {x['seconds']:.2f} s" for n, x in taken.items()))
