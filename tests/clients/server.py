"""Starts the built server for tests and for the load script, and reads what it says of itself."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

MODEL = "smollm2-135m-instruct"
_START = 120.0
"""Seconds to load in; more than enough on a busy machine, also where the model must be fetched first."""


class Server:
    """`qrae serve` on a free port of the loopback, with a key of its own, while the `with` block lasts.

    Leaving the block asks it to stop, and raises when it does not stop well or when its log tells of a fault.
    """

    def __init__(self, log: Path, *flags: str, binary: str | None = None) -> None:
        self.key = secrets.token_hex(16)
        self.log = log
        binary = binary or os.environ.get("QRAE_BIN", "target/release/qrae")
        here = ["--host", "127.0.0.1", "--port", "0", "--contexts", "memory"]
        self._command = [binary, "serve", "--model", MODEL, *here, *flags]
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    @property
    def v1(self) -> str:
        """What OpenAI's clients call the base URL."""
        return f"{self.url}/v1"

    @property
    def headers(self) -> dict[str, str]:
        """The key, for plain requests."""
        return {"Authorization": f"Bearer {self.key}"}

    def __enter__(self) -> Self:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("QRAE_") or k == "QRAE_MODELS"}
        environment |= {"QRAE_API_KEY": self.key, "NO_COLOR": "1"}
        with self.log.open("wb") as out:
            self._process = subprocess.Popen(self._command, stderr=out, env=environment)
        try:
            self._wait()
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            status = self._process.wait(timeout=40)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise AssertionError("the server did not stop within 40 s of being asked to") from None
        log = self.log.read_text(errors="replace")
        assert status == 0, f"the server ended with status {status}:\n{log[-2000:]}"
        faults = [line for line in log.splitlines() if " ERROR " in line or "panicked" in line]
        assert not faults, "the server's log tells of faults:\n" + "\n".join(faults)

    def _wait(self) -> None:
        assert self._process is not None
        end = time.monotonic() + _START
        while True:
            log = self.log.read_text(errors="replace")
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended with status {self._process.returncode}:\n{log[-2000:]}")
            if found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", log):
                self.url = found[1]
                if self._ready():
                    return
            assert time.monotonic() < end, f"the server was not ready within {_START:g} s:\n{log[-2000:]}"
            time.sleep(0.05)

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's values with these labels."""
        text = httpx.get(f"{self.url}/metrics", headers=self.headers, timeout=10, trust_env=False).text
        lines = re.findall(rf"^{re.escape(name)}\{{(.*)\}} (\S+)$", text, re.MULTILINE)
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [float(value) for given, value in lines if all(w in given.split(",") for w in wanted)]
        assert found, f"/metrics has no {name} with {labels}"
        return sum(found)

    def kv_in_use(self) -> int:
        """KV blocks that running requests hold."""
        return int(self.metric("qrae_kv_blocks", state="in_use"))

    def wait_until_idle(self, seconds: float = 10.0) -> None:
        """Waits until nothing runs, waits or holds KV; raises when that takes longer."""
        end = time.monotonic() + seconds
        while True:
            left = {
                "running": self.metric("vllm:num_requests_running"),
                "waiting": self.metric("vllm:num_requests_waiting"),
                "KV blocks in use": self.kv_in_use(),
            }
            if not any(left.values()):
                return
            assert time.monotonic() < end, f"after {seconds:g} s the server still has {left}"
            time.sleep(0.05)

    def memory(self) -> float:
        """MiB of memory that the process has in use."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        assert found
        return int(found[1]) / 1024
