"""A picture of what the benchmark wrote: seconds per batch by contender, with their spread.

    make bench ARGS="--only plot"       # .bench/speed.svg, of all .bench/<what>.json that are there

Runs in an environment of its own, which has matplotlib.
"""

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

OURS, OTHERS = "tab:red", "tab:blue"
ROW_INCHES = 0.32


def main(folder: Path) -> None:
    measured = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    rows = [len(each["entries"]) for each in measured.values()]
    figure, axes = plt.subplots(
        len(rows),
        figsize=(9, ROW_INCHES * (sum(rows) + 3 * len(rows))),
        height_ratios=rows,
        squeeze=False,
        layout="constrained",
    )
    for (name, each), axis in zip(measured.items(), axes.flat, strict=True):
        draw(axis, name, each["entries"])
    figure.savefig(folder / "speed.svg", metadata={"Date": None})


def draw(axis: plt.Axes, name: str, entries: list[dict]) -> None:
    """A dot at the median of the processes, a line from the fastest to the slowest."""
    for row, entry in enumerate(entries):
        seconds, color = entry["seconds"], OURS if entry["contender"] == "ours" else OTHERS
        axis.hlines(row, min(seconds), max(seconds), color=color)
        axis.plot(statistics.median(seconds), row, "o", color=color)
    axis.set_yticks(range(len(entries)), [entry["label"].strip("*") for entry in entries])
    axis.set(title=name, xlabel="seconds per batch", ylim=(len(entries) - 0.5, -0.5))
    axis.set_xlim(left=0)
    axis.grid(axis="x", alpha=0.3)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
