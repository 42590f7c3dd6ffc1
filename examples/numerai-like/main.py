"""Train one model of the sweep as one task of a job array: index 0 is the first model with the first seed.

Writes ``metrics.json``, ``predictions.npy`` and ``plot.png`` into the working directory.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
from pathlib import Path

import matplotlib
import numpy as np
import report
import tournament


def main() -> None:
    """Train the chosen model, and write the results."""
    default = tournament.Size()
    parser = argparse.ArgumentParser(description="Train one model of the sweep.")
    parser.add_argument("--rows", type=int, default=default.rows, help="rows of data (default: %(default)s)")
    parser.add_argument("--eras", type=int, default=default.eras, help="eras (default: %(default)s)")
    parser.add_argument("--features", type=int, default=default.features, help="features (default: %(default)s)")
    parser.add_argument("--index", type=int, help="which model and seed (default: the array index)")
    given = parser.parse_args()
    index = int(os.environ.get("HOSTLER_ARRAY_INDEX", "0")) if given.index is None else given.index
    seed, number = divmod(index, len(tournament.MODELS))
    model = list(tournament.MODELS)[number]
    size = tournament.Size(given.rows, given.eras, given.features)
    print(
        f"[{index}] {model} with seed {seed}: {size.rows} rows, {size.eras} eras, {size.features} features", flush=True
    )
    metrics, prediction = tournament.train(model, seed, size)
    Path("metrics.json").write_text(json.dumps({**metrics, "size": dataclasses.asdict(size)}, indent=2) + "\n")
    np.save("predictions.npy", prediction)
    matplotlib.use("Agg")
    report.plot([metrics]).savefig("plot.png", dpi=100)
    print(f"[{index}] correlation {metrics['mean']:.4f}, Sharpe ratio {metrics['sharpe']:.2f}", flush=True)


if __name__ == "__main__":
    main()
