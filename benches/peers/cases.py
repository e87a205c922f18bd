"""The matrix of measurements, and the order they are taken in: peers in turn within every repetition.

Every repetition has token ids of its own, the same for all peers, so no prefix cache helps where it should not; only a
decode after a long context has the same ones, so that the context, which is not timed, is computed once. Before the
timed repetitions each case runs once untimed on each peer; a LONG one does not, and is repeated FEW times at most. All
numbers are kept; report.py makes medians of them.
"""

from dataclasses import dataclass

from peer import ROOM, Worker, warm_disk
from setup import say

HEAD_AND_TAIL, AROUND_CHUNK = 40 + 25, 4  # the layout of a scored batch, as in ../common
LONG, FEW = 4096, 2  # tokens, repetitions
SHORT = 32  # context of a decode that is not about its context


@dataclass
class Case:
    key: str
    title: str
    command: str  # {seed} is filled in
    kind: str  # prefill, decode, scored
    tokens: int  # of a prompt
    shape: tuple = ()
    without: tuple = ()  # peers that do not do the same work


def prefill(n):
    return Case(f"prefill-{n}", f"prefill, {n:,} tokens", f"prefill {n} {{seed}}", "prefill", n)


def decode(batch):
    return Case(
        f"decode-{batch}", f"decode, batch {batch}", f"decode {batch} {SHORT} {{steps}} {{seed}}", "decode", SHORT
    )


def decode_after(n):
    return Case(f"decode-1-after-{n}", f"decode, batch 1, after {n:,} tokens", f"decode 1 {n} {{steps}} 1", "decode", n)


def scored(chunks, n, without=()):
    tokens = HEAD_AND_TAIL + chunks * (n + AROUND_CHUNK)
    title = f"scored batch {chunks} × {n}, cold"
    return Case(f"scored-{chunks}x{n}", title, "", "scored", tokens, (chunks, n), without)


# the table beside the peers
HEADLINE = [prefill(1024), prefill(4096), decode(1), decode(8), scored(5, 512), scored(10, 256)]
# points of the series besides; llama.cpp computes no scores, and how its prefill grows is in a series of its own
POINTS = [
    *(prefill(n) for n in (512, 2048, 8192)),
    *(decode_after(n) for n in (1024, 4096)),
    *(scored(chunks, 256, ("llama.cpp",)) for chunks in (1, 2, 5, 20)),
]
CASES = HEADLINE + POINTS


@dataclass
class Series:
    """Cases that differ in one number."""

    key: str
    title: str
    unit: str
    points: dict  # number -> key of the case


SERIES = [
    Series(
        "growth-prefill", "Length of a prompt", "tokens", {n: f"prefill-{n}" for n in (512, 1024, 2048, 4096, 8192)}
    ),
    Series(
        "growth-decode",
        "Context before a decode, one sequence",
        "tokens before",
        {SHORT: "decode-1"} | {n: f"decode-1-after-{n}" for n in (1024, 4096)},
    ),
    Series(
        "growth-chunks", "Chunks of a scored batch", "chunks of 256", {n: f"scored-{n}x256" for n in (1, 2, 5, 10, 20)}
    ),
]
# measured on qrae alone, or in processes of their own
OTHERS = {
    "second": "a second query over the same chunks (with the scored cases)",
    "capture": "capture overhead, gain of early exit",
    "mixed": "4 chats decode while scored batches of 5 × 512 arrive",
    "load": "load to first token, peak memory",
    "ceilings": "what the machine can do",
}
# what fits some minutes with a large model
SHORT_RUN = ["prefill-1024", "decode-1", "decode-8", "scored-5x512", "second", "mixed", "load", "ceilings"]
GROUPS = {"headline": [c.key for c in HEADLINE], "short": SHORT_RUN} | {s.key: list(s.points.values()) for s in SERIES}
# chats, tokens of each before the first scored batch, scored batches, their shape
MIXED = (4, 64, 2, 5, 512)


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

    def repetitions(self, case):
        """Their numbers; the one before 0 is the warm-up."""
        return range(min(self.reps, FEW)) if case.tokens > LONG else range(-1, self.reps)

    def main(self):
        cases = [c for c in CASES if c.key in self.wanted]
        if not cases:
            return
        room = max(ROOM, max(c.tokens for c in cases) + ROOM - LONG)
        workers = [self.start(peer, room=room) for peer in self.peers]
        for case in cases:
            able = [worker for worker in workers if worker.peer.name not in case.without]
            for rep in self.repetitions(case):
                seed = self.next_seed()
                for worker in self.turns(able, rep):
                    self.once(case, worker, seed, keep=rep >= 0)
        for worker in workers:
            worker.close()

    def start(self, peer, room=ROOM, **how):
        """A process of `peer` with KV room for so many tokens; `how` is for qrae."""
        say(f"starting {peer.name} …")
        return Worker(peer, self.log(peer), peer.command(room, **how))

    def load(self):
        """Fresh processes: time to the first token of a prompt of 64, peak memory then and after a scored batch."""
        if "load" not in self.wanted:
            return
        warm_disk(self.peers)
        starts = [("first token", peer, {}) for peer in self.peers]
        starts += [("first score", peer, {"first": "score"}) for peer in self.peers if peer.name == "qrae"]
        for rep in range(self.reps):
            for what, peer, how in self.turns(starts, rep):
                with self.start(peer, **how) as worker:
                    sample = {"seconds": worker.first_wall, "inside": worker.first, "peak_bytes": worker.peak_bytes()}
                    if rep == 0 and what == "first token":
                        worker.score(5, 512, self.next_seed(), 1)
                        sample["peak_after_scoring_bytes"] = worker.peak_bytes()
                self.keep(f"load, {what}", peer.name, sample)
                say(f"  {what}: {peer.name} {sample['seconds']:.2f} s, peak {sample['peak_bytes'] / 1e6:.0f} MB")

    def capture(self, qrae):
        """On qrae: a plain prefill, the same with capture, the same with early exit, in turn."""
        if "capture" not in self.wanted:
            return
        tokens = HEAD_AND_TAIL + 5 * (512 + AROUND_CHUNK)
        with self.start(qrae, depth="whole") as whole, self.start(qrae) as early:
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

    def mixed(self, qrae):
        """On qrae: scored batches alone, chats alone, both at once."""
        if "mixed" not in self.wanted:
            return
        chats, alone, batches, chunks, n = MIXED
        with self.start(qrae) as worker:
            worker.ask(f"mixed {chats} 8 1 1 {n} {self.next_seed()}")
            for _ in range(self.reps):
                seed = self.next_seed()
                sample = worker.ask(f"mixed {chats} {alone} {batches} {chunks} {n} {seed}")
                self.keep("mixed", "qrae", sample)
                token, batch = (
                    " and ".join(f"{1000 * sample[f'chats_{x}']['median']:.0f} ms" for x in ("alone", "beside")),
                    " and ".join(f"{max(sample[f'scored_{x}']):.2f} s" for x in ("alone", "beside")),
                )
                say(f"  mixed, alone and together: a token {token}, a scored batch {batch}")
