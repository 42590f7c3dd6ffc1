"""The same sweep from Python: one call for each model and seed, on all nodes. Run it on your machine.

It needs a cluster, the package ``hostler`` and ``requirements.txt``.
"""

from __future__ import annotations

import argparse

import matplotlib
import report
import tournament

import hostler


def main() -> None:
    """Train all models, print the table, and draw the plot."""
    parser = argparse.ArgumentParser(description="Train all models with several seeds.")
    parser.add_argument("--rows", type=int, default=tournament.Size().rows)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    size = tournament.Size(rows=given.rows)
    models = [model for _ in range(given.seeds) for model in tournament.MODELS]
    seeds = [seed for seed in range(given.seeds) for _ in tournament.MODELS]
    trained = list(hostler.map(tournament.train, models, seeds, [size] * len(models), cpus=1, memory="700M"))
    results = [metrics for metrics, _ in trained]
    _, validation = tournament.split(tournament.make(size))
    together = tournament.ensemble([prediction for _, prediction in trained])
    results.append({"model": "ensemble", "seed": 0, **tournament.score(together, validation)})
    print(report.table(results))
    matplotlib.use("Agg")
    report.plot(results).savefig("leaderboard.png", dpi=100)


if __name__ == "__main__":
    main()
