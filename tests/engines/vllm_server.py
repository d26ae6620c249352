"""An installed graphdiag in vLLM's environment, and ``vllm serve`` with it, over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engines.vllm_lab import Lab, describe, describe_plugin

ROOT = Path(__file__).parents[2]
PACKAGE = ("pyproject.toml", "README.md", "LICENSE", "graphdiag", "collectors")


class Installed:
    """A virtual environment on top of vLLM's, with graphdiag installed by pip.

    Attributes
    ----------
    python, graphdiag
        Its programs.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        home = folder / "venv"
        subprocess.run([lab.python, "-m", "venv", "--without-pip", str(home)], check=True)
        self.python = home / "bin" / "python"
        self.graphdiag = home / "bin" / "graphdiag"
        (packages,) = home.glob("lib/python*/site-packages")
        paths = "import sys; print(*filter(lambda p: 'site-packages' in p, sys.path), sep='\\n')"
        below = subprocess.run([lab.python, "-c", paths], check=True, capture_output=True)
        (packages / "vllm.pth").write_bytes(below.stdout)
        # The CPU wheel has another name; without this vLLM does not know its own version.
        describe(packages, "vllm", "0.32.0+cpu")
        describe_plugin(packages, "steplog", steplog="vllm_steplog:register")
        shutil.copy(Path(__file__).parent / "vllm_steplog.py", packages)
        source = folder / "source"
        source.mkdir()
        for name in PACKAGE:  # a build leaves files beside what it builds
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
        # Its other dependencies are the analyzer's; recording needs none of them.
        options = ["--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", *options]
        done = subprocess.run([*pip, str(source)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def environment(self, **more: object) -> dict[str, str]:
        """Return the environment of its programs: no path but its own."""
        environment = self.lab.environment(**more)
        del environment["PYTHONPATH"]
        return environment

    def run(self, *arguments: object, **more: object) -> subprocess.CompletedProcess[str]:
        """Run its ``graphdiag``."""
        command = [str(self.graphdiag), *map(str, arguments)]
        environment = self.environment(**more)
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


class Server:
    """``vllm serve`` in a process group of its own; its output is in a file."""

    def __init__(
        self, installed: Installed, folder: Path, before: Sequence[object] = (), **more: object
    ) -> None:
        self.output = folder / "server.log"
        self.port = _free_port()
        model = str(installed.lab.home / "tiny")
        vllm = Path(installed.lab.python).parent / "vllm"
        command = [
            *(*map(str, before), str(installed.python), str(vllm), "serve", model),
            *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--skip-tokenizer-init", "--dtype", "float32", "--enforce-eager"),
            *("--max-model-len", "256", "--max-num-seqs", "16", "--disable-uvicorn-access-log"),
        ]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                env=installed.environment(**more),
                cwd=folder,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._until_it_serves()

    def complete(self, prompt: list[int], tokens: int) -> list[int]:
        """Return the greedy tokens for a prompt."""
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        told = self._post("/v1/completions", body)
        found: list[int] = told["choices"][0]["token_ids"]
        return found

    def end(self, number: int) -> int:
        """Send a signal to the first process and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        """End whatever still runs."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self.process.wait()

    def _until_it_serves(self) -> None:
        deadline = time.monotonic() + 300
        while True:
            assert self.process.poll() is None, self.output.read_text()[-5000:]
            assert time.monotonic() < deadline, self.output.read_text()[-5000:]
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
