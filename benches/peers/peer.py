"""A peer: how its process is started, and one running process that is asked for measurements."""

import json, subprocess, time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from setup import Failed

ROOM = 4608  # KV tokens of a process if nothing needs more


@dataclass
class Peer:
    """A program that answers commands. `command(kv_tokens)` starts it; `suffix` is what its `score` command says besides."""

    name: str
    version: str
    command: Callable
    files: list  # what it loads, read once beforehand so that the disk is warm
    suffix: str = ""
    computes: str = field(default="", init=False)


class Worker:
    """One process of a peer. Its peak memory is the kernel's VmHWM, so Linux only."""

    def __init__(self, peer, log, command):
        self.peer, self.log = peer, log
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [str(c) for c in command],
            text=True,
            bufsize=1,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(log, "a"),
        )
        first = self.answer()
        self.first_wall, self.first = time.perf_counter() - begin, first["first_s"]
        peer.computes = first["computes"]

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            tail = Path(self.log).read_text(errors="replace").splitlines()[-10:]
            raise Failed(f"{self.peer.name} stopped with status {self.process.wait()}:\n  " + "\n  ".join(tail))
        return json.loads(line)

    def ask(self, command):
        """Runs one command; seconds, tokens and what else the peer tells."""
        self.process.stdin.write(command + "\n")
        return self.answer()

    def score(self, chunks, n, seed, tail):
        return self.ask(f"score {chunks} {n} {seed} {tail} {self.peer.suffix}".strip())

    def peak_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def warm_disk(peers):
    """Reads every file that a peer loads."""
    for path in {f for p in peers for f in p.files}:
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
