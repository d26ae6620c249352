"""A decode loop written by hand that records itself: what adopting graphdiag looks like.

    python examples/decode_loop.py -o recorded.parquet
    graphdiag report recorded.parquet

Requests come and go; each step decodes one token for all that run. ``--how graph`` (the default
where there is a GPU) replays one CUDA graph a bucket, ``--how compile`` runs one compiled region a
bucket, ``--how eager`` (the default elsewhere) runs the batch as it is. Lines that are there for
graphdiag are marked with ``#:``. Needs torch.
"""

from __future__ import annotations

import argparse
import random

import torch
from torch import nn
from torch.nn import functional as F

from graphdiag_collectors import Recorder, torch_hooks  #:

BUCKETS = (1, 2, 4, 8, 16)
MOST = 20  # requests at once; more than the largest bucket, as happens in practice
CONTEXT, LAYERS, HEADS, HIDDEN, WORDS = 64, 4, 4, 64, 512


class Block(nn.Module):
    """Attention over a static cache, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN) for _ in range(2))
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)
        self.mlp = nn.Sequential(
            nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN)
        )

    def forward(
        self,
        x: torch.Tensor,
        cache: torch.Tensor,
        rows: torch.Tensor,
        at: torch.Tensor,
        seen: torch.Tensor,
    ) -> torch.Tensor:
        """Return x (rows, HIDDEN), one layer further; cache is (2, rows, HEADS, CONTEXT, d)."""
        q, k, v = self.qkv(self.norms[0](x)).view(len(x), 3, HEADS, -1).unbind(1)
        cache[0, rows, :, at], cache[1, rows, :, at] = k, v
        read = F.scaled_dot_product_attention(q[:, :, None], cache[0], cache[1], attn_mask=seen)
        x = x + self.out(read.reshape(len(x), HIDDEN))
        return x + self.mlp(self.norms[1](x))


class Decoder(nn.Module):
    """A small decoder, whose forward decodes one token a row."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, HIDDEN)
        self.places = nn.Embedding(CONTEXT, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor, at: torch.Tensor, caches: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row; caches is (LAYERS, 2, rows, HEADS, CONTEXT, d)."""
        rows = torch.arange(len(tokens), device=tokens.device)
        seen = (torch.arange(CONTEXT, device=tokens.device) <= at[:, None])[:, None, None]
        x = self.words(tokens) + self.places(at)
        for block, cache in zip(self.blocks, caches, strict=True):
            x = block(x, cache, rows, at, seen)
        return (x @ self.words.weight.T).argmax(-1)


class Engine:
    """Static buffers for the largest batch, and a graph or a compiled region for each bucket."""

    def __init__(self, how: str, backend: str, device: str) -> None:
        self.how = how
        self.model = Decoder().to(device).eval()
        self.compiled = torch.compile(self.model, dynamic=False, backend=backend)
        self.tokens = torch.zeros(MOST, dtype=torch.long, device=device)
        self.at = torch.zeros(MOST, dtype=torch.long, device=device)
        self.caches = torch.zeros(LAYERS, 2, MOST, HEADS, CONTEXT, HIDDEN // HEADS, device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def forward(self, rows: int, compiled: bool = False) -> None:
        """Decode the first rows; the next tokens replace the ones there."""
        model = self.compiled if compiled else self.model
        self.tokens[:rows] = model(self.tokens[:rows], self.at[:rows], self.caches[:, :, :rows])

    def warm_up(self) -> None:
        """Capture or compile every bucket, the largest first."""
        for bucket in reversed(BUCKETS):
            if self.how == "compile":
                self.forward(bucket, compiled=True)
            if self.how == "graph":
                self.forward(bucket)
                graph = self.graphs[bucket] = torch.cuda.CUDAGraph()
                torch_hooks.name_graph(graph, f"decode/{bucket}", bucket)  #:
                largest = self.graphs[BUCKETS[-1]]
                with torch.cuda.graph(graph, pool=None if graph is largest else largest.pool()):
                    self.forward(bucket)

    def bucket_for(self, rows: int) -> int | None:
        """Return the smallest bucket that holds the rows, None where none does or is needed."""
        if self.how == "eager":
            return None
        return next((bucket for bucket in BUCKETS if bucket >= rows), None)

    def run(self, rows: int, bucket: int | None) -> None:
        """Decode rows, in their bucket if they have one."""
        if bucket is None:
            self.forward(rows)
        elif self.how == "graph":
            self.graphs[bucket].replay()
        else:
            self.forward(bucket, compiled=True)


def decode(engine: Engine, recorder: Recorder, steps: int) -> None:
    """Run the steps over requests that arrive and finish at random, always the same way."""
    arrivals = random.Random(0)
    left: list[int] = []  # tokens that each running request still wants; its index is its row
    region = torch_hooks.artifact_of(engine.model.forward)  #:
    for number in range(steps):
        busy = number % 100 < 60
        if len(left) < MOST and arrivals.random() < (0.8 if busy else 0.15):
            engine.at[len(left)] = 0
            left.append(arrivals.randint(5, CONTEXT - 1))
        if not left:
            continue
        rows = len(left)
        replays = torch_hooks.replays()  #:
        with recorder.step(requested=rows, num_reqs=rows, tokens_out=rows) as step:  #:
            bucket = engine.bucket_for(rows)
            engine.run(rows, bucket)
            if engine.how == "eager":
                step.eager()  #:
            elif bucket is None:
                step.fallback("over_max")  #:
            elif engine.how == "compile":
                step.replayed(bucket, region, mode="compiled")  #:
            else:
                step.replayed(bucket, f"decode/{bucket}", mode="full")  #:
                count, launch_ns = torch_hooks.replays_since(replays)  #:
                step.set(replays=count, graph_launch_ns=launch_ns)  #:
                torch.cuda.synchronize()  # an engine would wait for its tokens about here
        engine.at[:rows] += 1
        for row in reversed(range(rows)):  # the last row moves into the place of one that is done
            left[row] -= 1
            if not left[row]:
                last = len(left) - 1
                for buffer in (engine.tokens, engine.at):
                    buffer[row] = buffer[last].clone()
                engine.caches[:, :, row] = engine.caches[:, :, last]
                left[row] = left[-1]
                left.pop()


def main() -> None:
    """Decode and record."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    default = "graph" if device == "cuda" else "eager"
    parser = argparse.ArgumentParser(description="A decode loop that records itself.")
    parser.add_argument("-o", "--output", default="recorded.parquet")
    parser.add_argument("--how", choices=("graph", "compile", "eager"), default=default)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    if options.how == "graph" and device == "cpu":
        parser.error("CUDA graphs need a GPU: use --how compile or --how eager")
    torch.manual_seed(0)
    torch.set_num_threads(1)  # the model is tiny
    config = {  #:
        "engine": "decode_loop",
        "torch": torch.__version__,
        "mode": options.how,
        "capture_sizes": [] if options.how == "eager" else list(BUCKETS),
        "max_num_seqs": MOST,
        "graphs_off": ["decode"] if options.how == "eager" else [],
    }
    with torch.inference_mode(), Recorder(options.output, config, phase="decode") as recorder:  #:
        torch_hooks.install(recorder)  #:
        engine = Engine(options.how, options.backend, device)
        engine.warm_up()
        decode(engine, recorder, options.steps)
        torch_hooks.uninstall()  #:


if __name__ == "__main__":
    main()
