"""Facts about the machine that the numbers depend on."""

import json, os, platform, resource, subprocess, time
from pathlib import Path

FLAGS = [
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_int8",
    "asimddp",
    "i8mm",
    "bf16",
    "sve",
]


def output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    except OSError:
        return ""


def facts():
    info = dict(line.split(":", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if ":" in line)
    info = {key.strip(): value.strip() for key, value in info.items()}
    have = set((info.get("flags") or info.get("Features") or "").split())
    memory = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0]) * 1024
    return {
        "cpu": f"{info.get('model name', platform.machine())} (family {info.get('cpu family', '?')} model {info.get('model', '?')})",
        "flags": [f for f in FLAGS if f in have],
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "virtual": "hypervisor" in have,
        "memory_bytes": memory,
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
        "date": time.strftime("%Y-%m-%d"),
        "rustc": output("rustc", "--version"),
        "commit": output("git", "describe", "--always", "--dirty", "--exclude", "*"),
    }


class Others:
    """How much of the machine's time others took while we measured: all busy time, less our own and our children's."""

    def __init__(self):
        self.begin = time.time(), self.busy(), self.own()

    @staticmethod
    def busy():
        user, nice, system, idle, wait, irq, soft, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def own():
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(u.ru_utime + u.ru_stime for u in used)

    def share(self):
        """Of all cores, from 0 to 1. Our children must have ended."""
        wall, busy, own = time.time() - self.begin[0], self.busy() - self.begin[1], self.own() - self.begin[2]
        return max(0.0, (busy - own) / (wall * os.cpu_count()))


def ceilings(program, threads):
    lines = subprocess.run([program, str(threads)], capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def best(runs):
    """Of several runs of `ceilings`, the best rate of each kind and thread number."""
    top = {}
    for result in (r for run in runs for r in run):
        key = result["what"], result["isa"], result["threads"]
        top[key] = max(top.get(key, result), result, key=lambda r: r["rate"])
    return list(top.values())
