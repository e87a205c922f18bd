#!/usr/bin/env python3
"""Keeps a server of its own busy with mixed clients, and says whether it bore that.

    target/clients/venv/bin/python tests/clients/load.py --clients 16 --seconds 60

Each client asks again and again, with a short pause after a refusal: chats as streams, one in eight of which it leaves
in the middle, completions, scores, reranks, all of these with the connection cut before the answer, and requests that
must be refused. Well borne means: no error but 429 (too many requests) and those that were asked for, every answer
whole, one score that is asked for again and again the same to the last bit, nothing left running and no KV in use at
the end, no fault in the server's log, and no more memory at the end than after the first half, give or take
--memory-slack. Prints one table; the exit status is 1 when it was not well borne. Sends to the loopback alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from corpus import QUESTION, TEXTS
from server import MODEL, Server

WORDS = "lighthouse keeper harbour herring ferry lens coal town architect feast tide rope".split()  # noqa: SIM905
PAUSE = 0.05
"""Seconds after a refusal: shorter than the server asks for, so that refusals happen."""
KNOWN = {"query": QUESTION, "chunks": TEXTS, "explain": True}
"""A score that is asked for before, during and after the load."""


@dataclass
class Tally:
    """What became of one kind of request."""

    answered: int = 0
    left: int = 0
    refused: int = 0
    tokens: int = 0
    seconds: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the answers came."""
        ordered = sorted(self.seconds)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("nan")


class Fault(Exception):
    """An answer that is not what it should be."""


class Refused(Exception):
    """429."""


def text(dice: random.Random, words: int) -> str:
    return " ".join(dice.choices(WORDS, k=words)) + "."


async def post(client: httpx.AsyncClient, path: str, body: object) -> dict:
    answer = await client.post(path, json=body)
    check(answer.status_code, answer.text)
    return answer.json()


def check(status: int, said: str) -> None:
    if status == 429:
        if '"overloaded"' not in said and '"Overloaded"' not in said:
            raise Fault(f"429 without its reason: {said[:200]}")
        raise Refused
    if status != 200:
        raise Fault(f"status {status}: {said[:200]}")


async def chat(client: httpx.AsyncClient, dice: random.Random, tally: Tally) -> None:
    leaves = dice.random() < 1 / 8
    messages = [{"role": "user", "content": f"Tell of this: {text(dice, dice.randint(5, 200))}"}]
    body = {"model": MODEL, "messages": messages, "max_tokens": dice.randint(8, 48), "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        if answer.status_code != 200:
            check(answer.status_code, (await answer.aread()).decode(errors="replace"))
        pieces, reason, done = 0, None, False
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            if line == "data: [DONE]":
                done = True
                continue
            piece = json.loads(line[6:])
            if "error" in piece:
                raise Fault(f"in a stream: {piece['error']}")
            pieces += 1
            reason = piece["choices"][0]["finish_reason"] or reason
            if leaves and pieces == 4:
                tally.left += 1
                return
        if not done or reason not in ("stop", "length"):
            raise Fault(f"a stream ended after {pieces} pieces, reason {reason}, done {done}")
        tally.tokens += pieces


async def completion(client: httpx.AsyncClient, dice: random.Random, tally: Tally) -> None:
    most = dice.randint(1, 32)
    body = {"model": MODEL, "prompt": text(dice, dice.randint(1, 120)), "max_tokens": most, "n": dice.choice([1, 1, 2])}
    answer = await post(client, "/v1/completions", body)
    made = answer["usage"]["completion_tokens"]
    if len(answer["choices"]) != body["n"] or not 0 < made <= most * body["n"]:
        raise Fault(f"{len(answer['choices'])} choices of {made} tokens for n {body['n']}, max_tokens {most}")
    tally.tokens += made


def chunks(dice: random.Random) -> list[str]:
    # some sets come again, so that cached prompts are used beside new ones
    dice = random.Random(dice.randrange(6)) if dice.random() < 0.5 else dice
    return [text(dice, dice.randint(5, 80)) for _ in range(dice.randint(1, 8))]


async def score(client: httpx.AsyncClient, dice: random.Random, tally: Tally) -> None:
    sent = chunks(dice)
    answer = await post(client, "/v1/qrae/score", {"query": text(dice, 6), "chunks": sent, "explain": True})
    results = answer["results"]
    ranks = sorted(r["rank"] for r in results)
    if ranks != list(range(1, len(sent) + 1)) or not all(
        math.isfinite(r["score"]) and r["score"] >= 0 for r in results
    ):
        raise Fault(f"ranks {ranks}, scores {[r['score'] for r in results]} for {len(sent)} chunks")
    tally.tokens += answer["usage"]["prompt_tokens"]


async def rerank(client: httpx.AsyncClient, dice: random.Random, tally: Tally) -> None:
    sent = chunks(dice)
    answer = await post(client, "/v2/rerank", {"model": MODEL, "query": text(dice, 6), "documents": sent})
    scores = [r["relevance_score"] for r in answer["results"]]
    if sorted(r["index"] for r in answer["results"]) != list(range(len(sent))):
        raise Fault(f"indices {[r['index'] for r in answer['results']]} for {len(sent)} documents")
    if scores != sorted(scores, reverse=True) or not all(0 <= s <= 1 for s in scores):
        raise Fault(f"scores {scores}")
    tally.tokens += answer["usage"]["total_tokens"]


FIRST: list[object] = []
"""What the known score was the first time."""


async def known(client: httpx.AsyncClient, _dice: random.Random, tally: Tally) -> None:
    answer = await post(client, "/v1/qrae/score", KNOWN)
    if not FIRST:
        FIRST.append(answer["results"])
    if answer["results"] != FIRST[0]:
        raise Fault(f"the same score came out otherwise: {answer['results']}, and was {FIRST[0]}")
    tally.tokens += answer["usage"]["prompt_tokens"]


async def cut(client: httpx.AsyncClient, dice: random.Random, tally: Tally) -> None:
    """Asks for much and closes the connection while it is waited for, computed or answered."""
    much = [text(dice, 80) for _ in range(8)]
    path, body = dice.choice(
        [
            ("/v1/qrae/score", {"query": text(dice, 6), "chunks": much, "control": "null_query", "orders": 4}),
            ("/v1/qrae/score", {"queries": [text(dice, 6) for _ in range(20)], "chunks": much}),
            ("/v2/rerank", {"model": MODEL, "query": text(dice, 6), "documents": much, "orders": 4}),
            ("/rerank", {"query": text(dice, 6), "texts": much, "orders": 4}),
            (
                "/v1/completions",
                {"model": MODEL, "prompt": text(dice, 50), "max_tokens": 400, "ignore_eos": True, "n": 4},
            ),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": text(dice, 50)}], "max_tokens": 400}),
        ]
    )
    try:
        async with asyncio.timeout(dice.choice([0.001, 0.01, 0.05, 0.2])):
            await post(client, path, body)
    except TimeoutError:
        tally.left += 1


async def bad(client: httpx.AsyncClient, dice: random.Random, _tally: Tally) -> None:
    """Asks for what must be refused, and wants the right status and field told."""
    chat, long = "/v1/chat/completions", "word " * 20_000
    path, asked, status, field = dice.choice(
        [
            (chat, {"json": {"messages": []}}, 400, "messages"),
            (chat, {"json": {"messages": [{"role": "user", "content": "x"}], "temperature": 9}}, 400, "temperature"),
            (chat, {"json": {"messages": [{"role": "user", "content": long}]}}, 400, "messages"),
            (chat, {"json": {"model": "other", "messages": []}}, 404, "model"),
            (chat, {"content": b'{"messages": [', "headers": {"Content-Type": "application/json"}}, 400, None),
            (chat, {"content": b"{}", "headers": {"Content-Type": "text/plain"}}, 415, None),
            (chat, {"json": {}, "headers": {"Authorization": "Bearer wrong"}}, 401, None),
            ("/v1/completions", {"json": {"prompt": long}}, 400, "prompt"),
            ("/v1/qrae/score", {"json": {"query": "x", "chunks": ["x", 7]}}, 400, "chunks[1]"),
            ("/v1/qrae/score", {"json": {"query": "x", "chunks": ["x"], "heads": ["L99H0"]}}, 400, "heads"),
            ("/v1/qrae/score", {"json": {"query": long, "chunks": ["x"]}}, 400, "query"),
            ("/v2/rerank", {"json": {"query": "x", "documents": [7]}}, 400, "documents[0]"),
            ("/rerank", {"json": {"query": "x", "texts": [7]}}, 422, None),
            ("/none", {"json": {}}, 404, None),
        ]
    )
    answer = await client.post(path, **asked)
    if answer.status_code == 429:
        raise Refused
    error = answer.json()["error"]
    told = error["param"] if isinstance(error, dict) else None
    if (answer.status_code, told) != (status, field):
        raise Fault(f"{answer.status_code} of {told} for {status} of {field}: {answer.text[:200]}")


KINDS: dict[str, Callable[[httpx.AsyncClient, random.Random, Tally], Awaitable[None]]] = {
    "chat stream": chat,
    "completion": completion,
    "score": score,
    "rerank": rerank,
    "known score": known,
    "cut": cut,
    "bad request": bad,
}


async def busy(number: int, server: Server, until: float, tallies: dict[str, Tally]) -> None:
    """One client until the time is up."""
    dice = random.Random(number)
    async with httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=120, trust_env=False) as client:
        while time.monotonic() < until:
            kind = dice.choice(list(KINDS))
            tally, begin = tallies[kind], time.monotonic()
            try:
                await KINDS[kind](client, dice, tally)
            except Refused:
                tally.refused += 1
                await asyncio.sleep(PAUSE)
            except (Fault, httpx.HTTPError, ValueError, KeyError, IndexError) as e:
                tally.faults.append(f"{kind}: {type(e).__name__}: {e}")
                await asyncio.sleep(PAUSE)
            else:
                tally.answered += 1
                tally.seconds.append(time.monotonic() - begin)


async def watch(server: Server, seconds: float, memory: list[float]) -> None:
    """Notes the memory in use at half the time; the pool of KV has been filled by then."""
    await asyncio.sleep(seconds / 2)
    memory.append(server.memory())


async def load(server: Server, clients: int, seconds: float) -> tuple[dict[str, Tally], list[float]]:
    """All clients at once; the tallies, and MiB of memory before, at half the time."""
    tallies, memory = {kind: Tally() for kind in KINDS}, [server.memory()]
    until = time.monotonic() + seconds
    jobs = [busy(number, server, until, tallies) for number in range(clients)]
    await asyncio.gather(watch(server, seconds, memory), *jobs)
    return tallies, memory


def table(tallies: dict[str, Tally], seconds: float) -> str:
    rows = [f"{'':<13}{'answered':>9}{'left':>6}{'429':>7}{'faults':>8}{'p50':>9}{'p95':>9}{'tokens/s':>10}"]
    for kind, t in tallies.items():
        times = "".join(f"{t.percentile(share):>7.2f} s" for share in (0.5, 0.95))
        rows.append(
            f"{kind:<13}{t.answered:>9}{t.left:>6}{t.refused:>7}{len(t.faults):>8}{times}{t.tokens / seconds:>10.0f}"
        )
    return "\n".join(rows)


async def quiet(server: Server) -> None:
    """The known score on a server that does nothing else."""
    async with httpx.AsyncClient(base_url=server.url, headers=server.headers, timeout=120, trust_env=False) as client:
        await known(client, random.Random(), Tally())


def run(clients: int, seconds: float, limit: int, slack: float) -> list[str]:
    """Starts a server, loads it, prints the table; what was not well borne."""
    wrong: list[str] = []
    flags = ["--max-concurrent-requests", str(limit), "--kv-tokens", "8192"]
    FIRST.clear()
    tallies, memory, kv = {}, [math.nan] * 3, -1
    try:
        with tempfile.TemporaryDirectory() as folder, Server(Path(folder) / "log", *flags) as server:
            asyncio.run(quiet(server))
            tallies, memory = asyncio.run(load(server, clients, seconds))
            server.wait_until_idle()
            memory.append(server.memory())
            kv = server.kv_in_use()
            asyncio.run(quiet(server))
    except (AssertionError, Fault, Refused, httpx.HTTPError) as e:
        wrong.append(str(e) or type(e).__name__)
    print(table(tallies, seconds))
    print(
        f"{clients} clients for {seconds:g} s, {limit} requests at once; KV blocks in use at the end: {kv}; "
        f"MiB in use: {memory[0]:.0f} before, {memory[1]:.0f} at half the time, {memory[-1]:.0f} at the end"
    )
    wrong += [fault for tally in tallies.values() for fault in tally.faults]
    wrong += [f"no {kind} was answered" for kind, tally in tallies.items() if not tally.answered]
    if memory[-1] > memory[1] + slack:
        wrong.append(f"memory grew by {memory[-1] - memory[1]:.0f} MiB in the second half")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=12, help="clients at once (%(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="how long (%(default)s)")
    parser.add_argument("--limit", type=int, default=8, help="the server's --max-concurrent-requests (%(default)s)")
    parser.add_argument("--memory-slack", type=float, default=32, help="MiB that are no growth (%(default)s)")
    given = parser.parse_args()
    wrong = run(given.clients, given.seconds, given.limit, given.memory_slack)
    for line in wrong[:20]:
        print(f"WRONG  {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
