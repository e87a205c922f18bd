"""Gets the peers into a cache folder, each at a pinned version: their programs, a build of ours, dequantised weights.

Everything comes from package indexes through pip. What is there is not made again; remove the folder to start afresh.
"""

import hashlib, json, os, platform, shutil, subprocess, sys, tarfile, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
CRATE = HERE.parents[1]

# llama.cpp as the source package of llama-cpp-python carries it
LLAMA_PACKAGE = "0.3.36"
LLAMA_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
LLAMA_COMMIT = "0c1e57098"  # the package's change log names it
TOOLS = ["cmake==4.4.5", "ninja==1.13.2", "scikit-build-core==1.1.2", "gguf==0.19.0"]
TORCH = ["torch==2.15.0", "transformers==5.24.0", "accelerate==1.15.0", "gguf==0.19.0"]


class Failed(Exception):
    """A step of the setup failed; the message says what to do."""


def say(text):
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Cache:
    """The folder, and how its parts are made."""

    def __init__(self, root):
        self.root = Path(root)
        (self.root / "log").mkdir(parents=True, exist_ok=True)

    def log(self, name):
        return self.root / "log" / f"{name}.log"

    def step(self, name, what, command, **kw):
        """Runs a command with its output in a log file."""
        say(f"{what} …")
        with open(self.log(name), "ab") as out:
            code = subprocess.run(
                [str(c) for c in command], stdout=out, stderr=out, stdin=subprocess.DEVNULL, **kw
            ).returncode
        if code != 0:
            tail = self.log(name).read_text(errors="replace").splitlines()[-15:]
            raise Failed(
                f"{what}: failed with status {code}\n  " + "\n  ".join(tail) + f"\nThe whole log: {self.log(name)}"
            )

    def venv(self, name, packages, what):
        """A virtual environment with `packages`; returns its Python."""
        folder, python = self.root / name, self.root / name / "bin" / "python"
        stamp, wanted = folder / "installed", " ".join(packages)
        if not (stamp.is_file() and stamp.read_text() == wanted):
            shutil.rmtree(folder, ignore_errors=True)
            self.step(name, f"making a virtual environment for {what}", [sys.executable, "-m", "venv", folder])
            self.step(name, f"installing {wanted}", [python, "-m", "pip", "install", *packages])
            stamp.write_text(wanted)
        return python

    def tools(self):
        return self.venv("tools", TOOLS, "the build tools")

    def torch(self):
        return self.venv("torch", TORCH, "PyTorch (some GB: the index's Linux build carries CUDA libraries)")

    # ------------------------------------------------------------ llama.cpp
    def llama_source(self):
        folder = self.root / f"llama-cpp-python-{LLAMA_PACKAGE}"
        source = folder / "vendor" / "llama.cpp"
        if not source.is_dir():
            download = self.root / "download"
            python = self.tools()
            # pip reads the package's metadata with its build backend, which the tools have; it builds nothing
            self.step(
                "llama-download",
                f"fetching the source of llama-cpp-python {LLAMA_PACKAGE}",
                [
                    python,
                    "-m",
                    "pip",
                    "download",
                    "--no-deps",
                    "--no-build-isolation",
                    "--no-binary",
                    "llama-cpp-python",
                    "--dest",
                    download,
                    f"llama-cpp-python=={LLAMA_PACKAGE}",
                ],
            )
            archive = download / f"llama_cpp_python-{LLAMA_PACKAGE}.tar.gz"
            if hashlib.sha256(archive.read_bytes()).hexdigest() != LLAMA_SHA256:
                raise Failed(f"{archive} is not the pinned archive (its sha256 differs); remove it and try again")
            with tarfile.open(archive) as tar:
                (
                    tar.extractall(download, filter="data")
                    if hasattr(tarfile, "data_filter")
                    else tar.extractall(download)
                )
            (download / f"llama_cpp_python-{LLAMA_PACKAGE}").rename(folder)
        return source

    def llama(self, targets=("llama_worker",)):
        """The folder of llama.cpp's programs, built for this CPU. Keyed by the CPU, as the cache may be shared."""
        compiler = c_compiler()
        build = self.root / f"llama-{LLAMA_COMMIT}-{compiler}-{cpu_key()}"
        # built from a copy, so that one build serves every checkout
        worker = self.root / "llama-worker"
        worker.mkdir(exist_ok=True)
        for file in (HERE / "llama").iterdir():
            text, copy = file.read_bytes(), worker / file.name
            if not copy.is_file() or copy.read_bytes() != text:
                copy.write_bytes(text)
        tools = self.tools().parent
        environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
        cxx = {"clang": "clang++", "gcc": "g++"}[compiler]
        if compiler == "gcc":
            say(
                "no clang: building llama.cpp with gcc. With GCC 12, llama.cpp's AMX code stops with an illegal instruction; "
                "on a CPU with AMX install clang"
            )
        self.step(
            "llama-build",
            "configuring llama.cpp",
            [
                tools / "cmake",
                "-G",
                "Ninja",
                "-S",
                worker,
                "-B",
                build,
                "-DCMAKE_BUILD_TYPE=Release",
                f"-DCMAKE_C_COMPILER={compiler}",
                f"-DCMAKE_CXX_COMPILER={cxx}",
                "-DGGML_NATIVE=ON",
                "-DGGML_OPENMP=OFF",
                f"-DLLAMA_BUILD_COMMIT={LLAMA_COMMIT}",
                f"-DLLAMA_SOURCE={self.llama_source()}",
            ],
            env=environment,
        )
        self.step(
            "llama-build",
            f"building {', '.join(targets)} (minutes the first time)",
            [tools / "ninja", "-C", build, *targets],
            env=environment,
        )
        return build / "bin"

    # ------------------------------------------------------------ ours
    def ceilings(self):
        program = self.root / f"ceilings-{cpu_key()}"
        self.step(
            "ceilings",
            "building the program that measures the machine",
            [c_compiler(), "-std=gnu11", "-O2", "-pthread", "-o", program, HERE / "ceilings.c"],
        )
        return program

    def weights(self, python, model, dtype):
        """`model` dequantised to a Hugging Face folder in `dtype`."""
        folder = self.root / "weights" / f"{model.stem}-{model.stat().st_size}-{dtype}"
        if not folder.is_dir():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            self.step(
                "dequantise",
                f"dequantising {model.name} to {dtype} for PyTorch",
                [python, HERE / "dequantise.py", model, partial, dtype],
            )
            partial.rename(folder)
        return folder

    def facts(self, model):
        """Sizes of the model that the ceilings need; see gguf_facts.py."""
        output = subprocess.run([self.tools(), HERE / "gguf_facts.py", model], capture_output=True, text=True)
        if output.returncode != 0:
            raise Failed(f"{model} cannot be read as GGUF:\n{output.stderr}")
        return json.loads(output.stdout)


def qrae():
    """Builds our worker and returns its path."""
    say("building qrae …")
    command = ["cargo", "bench", "--no-run", "--bench", "peer_cases", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=CRATE, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        raise Failed("qrae does not build; the messages are above")
    lines = [json.loads(line) for line in built.stdout.splitlines()]
    return Path(next(x["executable"] for x in lines if x.get("executable") and x["target"]["name"] == "peer_cases"))


def c_compiler():
    found = next((c for c in ("clang", "gcc") if shutil.which(c)), None)
    if not found:
        raise Failed("there is no C compiler; install clang (or gcc)")
    return found


def cpu_key():
    """A short name for what `-march=native` depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        facts = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    except OSError:
        facts = [platform.processor()]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:8]
