"""A long text with its attention: what it takes beside the same text without, and beside attention that makes whole matrices: ``python -m bench.long_text``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .common import Row, asked, judged, report

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/long_text.json``; return the page of all results."""
    options = asked(__doc__, arguments, "512 positions, once", rounds=(5, "texts of each way"))
    rows = _long_text(512 if options.quick else 8192, 1 if options.quick else options.rounds)
    how = f"Each way {options.rounds} times in turn, in a process of its own, on all cores; medians. From the request to the text with all its rows."
    return report("long_text", "A long text with its attention", rows, how=how, quick=options.quick)


_LONG_TEXT = """
import json, sys
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
import megalens
from megalens.demo.model import ByteTokenizer

positions, way = int(sys.argv[1]), sys.argv[2]
config = LlamaConfig(
    vocab_size=256, hidden_size=128, intermediate_size=512, num_hidden_layers=4, num_attention_heads=4, max_position_embeddings=positions + 8
)
model = LlamaForCausalLM(config)
model.set_attn_implementation("eager" if way == "eager" else "sdpa")
with megalens.serve(model, ByteTokenizer()) as lab:
    text = lab.generate("a" * positions, 2, attention=way != "plain")
    # What getrusage calls the most is that of the process which started this one, where that is larger.
    most = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps([text.seconds, int(most.split()[1]) / 1024]))
"""


def _long_text(positions: int, rounds: int) -> list[Row]:
    """Measure a long text with its attention, beside the same without, and with attention that makes whole matrices."""
    found: dict[str, list[tuple[float, float]]] = {"plain": [], "seen": [], "eager": []}
    for _ in range(rounds):
        for way, each in found.items():
            command = [sys.executable, "-c", _LONG_TEXT, str(positions), way]
            seconds, memory = json.loads(
                subprocess.run(command, check=True, capture_output=True, text=True).stdout
            )
            each.append((seconds, memory))
    (seconds, memory), plain, eager = (
        [statistics.median(values) for values in zip(*found[way], strict=True)]
        for way in ("seen", "plain", "eager")
    )
    what = f"{positions:,} positions read by a Llama of 4 layers of 4 heads, with attention"
    return [
        judged(
            what,
            seconds,
            "s",
            "≤ 3",
            f"{plain[0]:.2f} s without, {eager[0]:.2f} s where attention makes whole matrices (eager)",
        ),
        judged(
            f"{what}: memory",
            memory,
            "MiB",
            "≤ 1024",
            f"{plain[1]:.0f} MiB without, {eager[1]:.0f} MiB with whole matrices",
        ),
    ]


if __name__ == "__main__":
    main()
