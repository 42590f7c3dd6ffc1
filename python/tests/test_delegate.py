"""Methods of objects on nodes."""

from __future__ import annotations

import enum
import functools
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hostler


class Refused(Exception):
    """An exception of a method."""


class Experiment:
    """Counts, and keeps results."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.runs = 0
        self.note = "new"

    def run(self, *values: int, scale: int = 1) -> list[Any]:
        """Add results, and print."""
        print("measured", len(values))
        self.runs += 1
        self.results += [scale * value for value in values]
        del self.note
        return self.results

    def chain(self) -> Experiment:
        """Return itself, with where it ran."""
        self.results.append((os.getpid(), os.getcwd()))
        return self

    def fail(self) -> None:
        """Change the state, and fail."""
        self.runs = 7
        raise Refused("too hot")

    def keep_lock(self) -> None:
        """Make a state that cannot come back."""
        self.results = [threading.Lock()]


class Colour(enum.Enum):
    """A member is pickled by its name."""

    RED = 1

    def text(self) -> str:
        """Return the name and the value."""
        return f"{self.name} {self.value}"


class Samples(list[int]):
    """Has its items outside of `__dict__`."""


class Point:
    """Has an attribute outside of `__dict__`."""

    __slots__ = ("__dict__", "x")


class Later:
    """Methods that return before they have run."""

    async def wait(self) -> None:
        """Return a coroutine."""

    def each(self) -> Iterator[int]:
        """Return a generator."""
        yield 1


def on_node(experiment: Experiment, **options: Any) -> Experiment:
    return hostler.delegate(experiment, cpus=1, memory="300M", **options)


def test_method_runs_on_a_node_and_the_changed_state_comes_back(
    client: hostler.Client, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = Experiment()
    remote = on_node(experiment)
    results = remote.run(1, 2, scale=10)
    assert capsys.readouterr().out == "measured 2\n"
    assert (results, experiment.runs, hasattr(experiment, "note")) == ([10, 20], 1, False)
    # What the result and the object share stays shared.
    assert results is experiment.results
    # The stand-in has the attributes of the object.
    remote.runs = 5
    assert (experiment.runs, remote.runs) == (5, 5)
    assert repr(remote).endswith("on a node>")
    with pytest.raises(Refused, match="too hot") as raised:
        remote.fail()
    assert 'raise Refused("too hot")' in str(raised.value.__cause__)
    assert experiment.runs == 7


def test_method_runs_in_a_shared_directory(
    client: hostler.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    experiment = Experiment()
    assert on_node(experiment, shared=True).chain() is experiment
    ((pid, directory),) = experiment.results
    assert (pid != os.getpid(), directory) == (True, str(tmp_path))


def test_functions_and_what_cannot_be_delegated(client: hostler.Client) -> None:
    def twice(x: int) -> int:
        return 2 * x

    double = hostler.delegate(twice, cpus=1, memory="300M")
    assert double(4) == 8
    assert hostler.delegate(functools.partial(pow, 2), cpus=1, memory="300M")(3) == 8
    experiment = Experiment()
    with pytest.raises(hostler.PicklingError, match="the attribute `results` of the call cannot be pickled"):
        on_node(experiment).keep_lock()
    # Nothing came back.
    assert experiment.results == []
    experiment.results = [threading.Lock()]
    with pytest.raises(hostler.PicklingError, match="the attribute `results` cannot be pickled"):
        on_node(experiment).run()


def test_objects_that_are_pickled_by_name_keep_their_state(client: hostler.Client) -> None:
    assert hostler.delegate(Colour.RED, cpus=1, memory="300M").text() == "RED 1"
    assert Colour.RED.text() == "RED 1"
    logger = logging.getLogger("hostler.test")
    logger.setLevel(logging.ERROR)
    hostler.delegate(logger, cpus=1, memory="300M").isEnabledFor(logging.ERROR)
    assert (logger.name, logger.level) == ("hostler.test", logging.ERROR)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hostler.delegate([]), "a list has no `__dict__`"),
        (lambda: hostler.delegate(Samples()), "a Samples has state outside of its `__dict__`"),
        (lambda: hostler.delegate(Point()), "a Point has state outside of its `__dict__`"),
        (lambda: hostler.delegate(Refused()), "a Refused has state outside of its `__dict__`"),
        (lambda: hostler.delegate(Experiment), "Experiment is a class"),
        (lambda: hostler.delegate(json), "json is a module"),
        (lambda: hostler.delegate(Later()).wait(), "Later.wait returns a coroutine"),
        (lambda: hostler.delegate(Later()).each(), "Later.each returns a generator"),
        (lambda: hostler.delegate(Later().each)(), "Later.each returns a generator"),
    ],
)
def test_what_could_not_come_back_is_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(hostler.UsageError, match=message):
        call()
