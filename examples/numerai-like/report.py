"""The table and the plot of several models: `python report.py out` after `hostler fetch ID --to out`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import tournament


def table(results: list[dict[str, Any]]) -> str:
    """Return the results, the best first."""
    lines = [f"{'MODEL':<10}{'SEED':>6}{'MEAN':>9}{'STD':>9}{'SHARPE':>9}{'DRAWDOWN':>10}"]
    lines += [
        f"{found['model']:<10}{found['seed']:>6}{found['mean']:>9.4f}{found['std']:>9.4f}"
        f"{found['sharpe']:>9.2f}{found['max_drawdown']:>10.4f}"
        for found in sorted(results, key=lambda found: -found["sharpe"])
    ]
    return "\n".join(lines)


def plot(results: list[dict[str, Any]]) -> Any:
    """Return a figure with the sum of the correlations up to each era, one line for each model and seed."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 4), layout="constrained")
    names = sorted({found["model"] for found in results})
    for found in results:
        eras = [int(era) for era in found["eras"]]
        first = found["seed"] == min(other["seed"] for other in results if other["model"] == found["model"])
        axes.plot(
            eras,
            np.cumsum(list(found["eras"].values())),
            color=f"C{names.index(found['model'])}",
            label=found["model"] if first else None,
        )
    axes.axhline(0, color="grey", linewidth=0.5)
    axes.set(title="Sum of the correlations in validation", xlabel="era", ylabel="sum")
    axes.legend()
    return figure


def main() -> None:
    """Read what array tasks wrote, and add the ensemble of all models."""
    matplotlib.use("Agg")
    places = sorted(file.parent for file in Path(sys.argv[1]).rglob("metrics.json"))
    results = [json.loads((place / "metrics.json").read_text(encoding="utf-8")) for place in places]
    size = tournament.Size(**results[0].pop("size"))
    _, validation = tournament.split(tournament.make(size))
    together = tournament.ensemble([np.load(place / "predictions.npy") for place in places])
    results.append({"model": "ensemble", "seed": 0, **tournament.score(together, validation)})
    print(table(results))
    plot(results).savefig("leaderboard.png", dpi=100)


if __name__ == "__main__":
    main()
