"""Estimate pi on all nodes: each task throws darts at a square and counts those in the circle.

Run this on your machine, not as a job: `python main.py`. It needs a cluster and the package, which
`pip install ./python` installs from a checkout.
"""

import random

import hostler


def hits(seed: int, darts: int = 100_000) -> int:
    """Return how many darts hit the quarter circle."""
    generator = random.Random(seed)
    return sum(generator.random() ** 2 + generator.random() ** 2 < 1 for _ in range(darts))


def main() -> None:
    """Print the estimate."""
    total = sum(hostler.map(hits, range(40), chunksize=10, cpus=1, memory="100M"))
    print(f"pi is about {4 * total / (40 * 100_000):.3f}")


if __name__ == "__main__":
    main()
