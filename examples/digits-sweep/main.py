"""Train one model of a small sweep over handwritten digits.

The list `SWEEP` contains model families and hyper-parameters. A run trains one entry, chosen by the array index of the
job, so ``-a 0-7`` trains eight models in parallel. All models use the same split of the same data, which is part of
scikit-learn, so their accuracies are comparable.

A run writes ``metrics.json`` and ``plot.png`` into the working directory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")  # Compute nodes have no display.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import ConfusionMatrixDisplay, accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

SEED = 20
TEST_SHARE = 0.3


class Candidate(NamedTuple):
    """One point of the sweep: a model family and its hyper-parameters."""

    family: type[ClassifierMixin]
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """The class name that scikit-learn gives this family."""
        return self.family.__name__


SWEEP: list[Candidate] = [
    Candidate(LogisticRegression, {"C": 0.01, "max_iter": 500}),
    Candidate(LogisticRegression, {"C": 1.0, "max_iter": 500}),
    Candidate(SVC, {"C": 1.0, "gamma": 0.002}),
    Candidate(SVC, {"C": 10.0, "gamma": 0.02}),
    Candidate(RandomForestClassifier, {"n_estimators": 50, "max_depth": 8, "random_state": SEED}),
    Candidate(RandomForestClassifier, {"n_estimators": 300, "max_depth": None, "random_state": SEED}),
    Candidate(KNeighborsClassifier, {"n_neighbors": 3, "weights": "distance"}),
    Candidate(MLPClassifier, {"hidden_layer_sizes": (64, 32), "max_iter": 200, "random_state": SEED}),
]


def main() -> int:
    """Train the chosen candidate and write the results. Return the exit code of the process."""
    index = chosen_index()
    if not 0 <= index < len(SWEEP):
        print(f"index {index} is outside the sweep: choose 0 to {len(SWEEP) - 1}", file=sys.stderr)
        return 2
    candidate = SWEEP[index]
    say(f"[{index}] {candidate.name} {candidate.parameters}")

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=TEST_SHARE, random_state=SEED, stratify=labels
    )
    say(f"[{index}] training on {len(train_y)} digits")
    started = time.perf_counter()
    model = make_pipeline(StandardScaler(), candidate.family(**candidate.parameters))
    model.fit(train_x, train_y)
    train_seconds = time.perf_counter() - started

    predicted = model.predict(test_x)
    accuracy = float(accuracy_score(test_y, predicted))
    say(f"[{index}] {accuracy:.2%} of {len(test_y)} unseen digits are right after {train_seconds:.2f} s of training")

    metrics = {
        "index": index,
        "model": candidate.name,
        "parameters": candidate.parameters,
        "accuracy": round(accuracy, 6),
        "train_seconds": round(train_seconds, 3),
        "n_train": len(train_y),
        "n_test": len(test_y),
    }
    Path("metrics.json").write_text(json.dumps(metrics, indent=2) + "\n", encoding="utf-8")
    draw(Path("plot.png"), f"{candidate.name}: {accuracy:.2%}", test_x, test_y, predicted)
    say(f"[{index}] wrote metrics.json and plot.png")
    return 0


def chosen_index() -> int:
    """Return the index of the candidate to train: ``--index`` if given, else the job's array index."""
    parser = argparse.ArgumentParser(description="Train one model of the sweep.")
    parser.add_argument("--index", type=int, help=f"which candidate, 0 to {len(SWEEP) - 1} (default: the array index)")
    index: int | None = parser.parse_args().index
    if index is not None:
        return index
    for variable in ("HOSTLER_ARRAY_INDEX", "SLURM_ARRAY_TASK_ID"):
        if text := os.environ.get(variable):
            return int(text)
    parser.error("not part of a job array: choose a candidate with --index")


def draw(path: Path, title: str, images: np.ndarray, labels: np.ndarray, predicted: np.ndarray) -> None:
    """Draw the confusion matrix and the first nine misclassified digits.

    Parameters
    ----------
    images
        Test images, shape (n, 64): 8 by 8 pixels of ink from 0 to 16.
    labels, predicted
        The true and the predicted digit of each image, shape (n,).
    """
    wrong = np.flatnonzero(labels != predicted)[:9]
    figure = plt.figure(figsize=(9, 5), layout="constrained")
    figure.suptitle(title)
    halves = figure.add_gridspec(1, 2, width_ratios=(3, 2))
    left, right = figure.add_subfigure(halves[0, 0]), figure.add_subfigure(halves[0, 1])
    ConfusionMatrixDisplay.from_predictions(labels, predicted, ax=left.subplots(), colorbar=False, cmap="Blues")
    for axes in (cells := right.subplots(3, 3)).flat:
        axes.set_axis_off()
    for axes, i in zip(cells.flat, wrong):
        axes.imshow(images[i].reshape(8, 8), cmap="gray_r")
        axes.set_title(f"{labels[i]} read as {predicted[i]}", fontsize=8)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def say(line: str) -> None:
    """Print a line and flush it, so that `hostler logs -f` shows it immediately."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
