"""Data, models and scores of a tournament like Numerai's: predict returns of shares that nobody may recognise.

The data is synthetic and has the shape of the real one: rows belong to eras, which follow each other in time; all
features are integers from 0 to 4; the target is 0, 0.25, 0.5, 0.75 or 1; and features say very little about it. Each
array task makes the same data from the same seed, so nothing has to be copied.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
from scipy.stats import norm, rankdata

#: Targets overlap the eras that follow, so these eras between training and validation are not used.
EMBARGO = 4

#: Model families. Each is trained with several seeds.
MODELS: dict[str, dict[str, Any]] = {
    "ridge": {},
    "shallow": {"num_leaves": 7, "learning_rate": 0.05, "feature_fraction": 0.3, "rounds": 80},
    "deep": {"num_leaves": 31, "learning_rate": 0.03, "feature_fraction": 0.3, "rounds": 120},
}


@dataclass(frozen=True)
class Size:
    """How much data there is. The real data set has about 2.7 million rows, 570 eras and 2,400 features."""

    rows: int = 12_000
    eras: int = 48
    features: int = 42


@dataclass(frozen=True)
class Data:
    """Rows, ordered by era.

    Attributes
    ----------
    features : ndarray of int8, shape (rows, features)
    target : ndarray of float32, shape (rows,)
    era : ndarray of int32, shape (rows,)
    """

    features: np.ndarray
    target: np.ndarray
    era: np.ndarray

    def part(self, eras: range) -> Data:
        """Return the rows of some eras."""
        wanted = (self.era >= eras.start) & (self.era < eras.stop)
        return Data(self.features[wanted], self.target[wanted], self.era[wanted])


def make(size: Size, seed: int = 1) -> Data:
    """Return synthetic data. What features say about the target drifts from era to era, as in a market."""
    random = np.random.default_rng(seed)
    features = random.integers(0, 5, (size.rows, size.features), dtype=np.int8)
    era = np.sort(np.arange(size.rows, dtype=np.int32) % size.eras)
    target = np.empty(size.rows, np.float32)
    lasting = random.normal(size=size.features)
    for number in range(size.eras):
        rows = slice(*np.searchsorted(era, (number, number + 1)))
        centred = features[rows] / 2 - 1
        signal = centred @ (lasting + random.normal(size=size.features))
        # Pairs of features that mean something only together: what trees find and linear models do not.
        signal += 1.5 * np.sum(centred[:, 0:8:2] * centred[:, 1:8:2], axis=1)
        hidden = 0.12 * signal / signal.std() + random.normal(size=len(signal))
        target[rows] = np.digitize(rankdata(hidden) / (len(hidden) + 1), [0.05, 0.25, 0.75, 0.95]) / 4
    return Data(features, target, era)


def split(data: Data) -> tuple[Data, Data]:
    """Return training and validation data: the last quarter of the eras, after the embargo, is for validation."""
    eras = int(data.era[-1]) + 1
    border = eras * 3 // 4
    return data.part(range(border - EMBARGO)), data.part(range(border, eras))


def correlation(prediction: np.ndarray, target: np.ndarray) -> float:
    """Return the score of one era: the correlation of ranks that gives weight to the extremes, as Numerai's does."""
    gauss = norm.ppf((rankdata(prediction) - 0.5) / len(prediction))
    stretched = np.sign(gauss) * np.abs(gauss) ** 1.5
    centred = target - target.mean()
    extremes = np.sign(centred) * np.abs(centred) ** 1.5
    return float(np.corrcoef(stretched, extremes)[0, 1])


def score(prediction: np.ndarray, data: Data) -> dict[str, Any]:
    """Return the correlation of each era, and their mean, standard deviation and Sharpe ratio."""
    eras = {era: correlation(prediction[data.era == era], data.target[data.era == era]) for era in np.unique(data.era)}
    values = np.array(list(eras.values()))
    total = np.cumsum(values)
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "sharpe": float(values.mean() / values.std()),
        "max_drawdown": float(np.max(np.maximum.accumulate(total) - total)),
        "eras": {str(era): round(value, 5) for era, value in eras.items()},
    }


def train(model: str, seed: int, size: Size = Size()) -> tuple[dict[str, Any], np.ndarray]:
    """Train one model. Return its metrics, and its predictions for the validation data."""
    training, validation = split(make(size))
    prediction = _predict(model, seed, training, validation.features)
    return {"model": model, "seed": seed, **score(prediction, validation)}, prediction


def ensemble(predictions: list[np.ndarray]) -> np.ndarray:
    """Return the mean of the ranks of several predictions."""
    return np.mean([rankdata(prediction) for prediction in predictions], axis=0)


def _predict(model: str, seed: int, training: Data, features: np.ndarray) -> np.ndarray:
    if model == "ridge":
        chosen = np.random.default_rng(seed).permutation(features.shape[1])[: max(1, features.shape[1] * 3 // 4)]
        inputs = training.features[:, chosen].astype(np.float32) - 2
        square = inputs.T @ inputs + 100 * np.eye(len(chosen), dtype=np.float32)
        weights = np.linalg.solve(square, inputs.T @ (training.target - 0.5))
        return (features[:, chosen].astype(np.float32) - 2) @ weights
    settings = dict(MODELS[model])
    rounds = settings.pop("rounds")
    threads = int(os.environ.get("HOSTLER_CPUS", "1"))
    settings |= {"objective": "regression", "seed": seed, "num_threads": threads, "verbose": -1, "deterministic": True}
    # Bins are the five values of a feature.
    table = lightgbm.Dataset(training.features, training.target, params={"max_bin": 5, "min_data_in_bin": 1})
    return np.asarray(lightgbm.train(settings, table, rounds).predict(features))
