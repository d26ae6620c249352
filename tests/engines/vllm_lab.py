"""What the tests on the real vLLM start it with: a tiny model, plugins, an environment."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COLLECTORS = HERE.parents[1] / "collectors"
MODEL = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
hidden, layers = map(int, sys.argv[2:4])
config = LlamaConfig(hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
    num_attention_heads=2, num_key_value_heads=2, vocab_size=512, max_position_embeddings=512)
LlamaForCausalLM(config).save_pretrained(sys.argv[1])
"""
GROUP = "vllm.general_plugins"
COLLECTOR = "graphdiag_collectors.vllm:register"


def describe_plugin(folder: Path, name: str, **entries: str) -> None:
    """Write the metadata by which vLLM finds a plugin in ``folder``."""
    describe(folder, f"{name}-test", "0.1")
    lines = [f"{entry} = {target}" for entry, target in entries.items()]
    text = "\n".join([f"[{GROUP}]", *lines, ""])
    (folder / f"{name}_test-0.1.dist-info" / "entry_points.txt").write_text(text)


def describe(folder: Path, name: str, version: str) -> None:
    """Write the metadata of a distribution."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def make_model(python: str, folder: Path, hidden: int = 64, layers: int = 2) -> None:
    """Save a model of random weights, ``hidden`` wide."""
    command = [python, "-c", MODEL, str(folder), str(hidden), str(layers)]
    subprocess.run(command, check=True, capture_output=True)


@dataclass(frozen=True)
class Lab:
    """A Python that has vLLM, and a folder with a tiny model and metadata of plugins."""

    python: str
    home: Path

    @classmethod
    def at(cls, python: str, home: Path) -> Lab:
        """Make the model and the metadata."""
        describe_plugin(home / "plugins", "steplog", steplog="vllm_steplog:register")
        # The CPU wheel has another name; without this vLLM does not know its own version.
        describe(home / "plugins", "vllm", "0.32.0+cpu")
        # The collector, twice: an engine may find it under two names.
        describe_plugin(
            home / "collector", "graphdiag", graphdiag=COLLECTOR, graphdiag_again=COLLECTOR
        )
        make_model(python, home / "tiny")
        return cls(python, home)

    def environment(self, *path: Path, trace: Path | None = None, **more: object) -> dict[str, str]:
        """Return the environment to start an engine in, with ``path`` in front."""
        kept = {name: text for name, text in os.environ.items() if "GRAPHDIAG" not in name}
        told = {} if trace is None else {"GRAPHDIAG_TRACE": str(trace)}
        folders = (*path, self.home / "plugins", HERE)
        return {
            **kept,
            "PYTHONPATH": os.pathsep.join(map(str, folders)),
            "HOME": str(self.home),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            # A model this small gains nothing from threads, which wait for each other where others
            # run on the machine.
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_LOGGING_LEVEL": "ERROR",
            **told,
            **{name: str(value) for name, value in more.items()},
        }

    def run(
        self,
        script: str,
        *arguments: object,
        trace: Path | None = None,
        model: str = "tiny",
        **more: object,
    ) -> dict[str, Any]:
        """Run a script of this folder on a model, and return the JSON it prints last."""
        environment = self.environment(self.home / "collector", COLLECTORS, trace=trace, **more)
        command = [self.python, str(HERE / script), str(self.home / model), *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr[-5000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        found: dict[str, Any] = json.loads(lines[-1])
        return {**found, "stderr": done.stderr}


def logged(log: Path) -> tuple[int, list[tuple[int, int]]]:
    """Return the worker's pid, and time in ns and tokens of each step it logged."""
    pid, *lines = log.read_text().splitlines()
    pairs = [line.split() for line in lines]
    return int(pid), [(int(time), int(tokens)) for time, tokens in pairs]
