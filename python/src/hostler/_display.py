"""What notebooks show of jobs, maps, nodes and clusters: HTML, and the same as text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from hostler.errors import HostlerError

_CELL = "text-align:left;padding:0 1em 0 0"


class Rich:
    """An object that notebooks show with its present state."""

    def _view(self) -> tuple[str, str]:
        """Return the state as text and as HTML."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        try:
            text, markup = self._view()
        except HostlerError as error:
            text = f"{self!r}: {error.message}"
            markup = escaped(text)
        return {"text/plain": text, "text/html": markup}

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]


class RichList(Rich):
    """A list that notebooks show as a table. This base class comes before `list`, whose text IPython would print."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self._view()[0])


def escaped(value: object) -> str:
    """Return a value as HTML."""
    return html.escape(str(value))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> tuple[str, str]:
    """Return a table as text and as HTML."""
    texts = [list(columns), *([_plain(value) for value in row] for row in rows)]
    widths = [max(len(row[number]) for row in texts) for number in range(len(columns))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [[column.upper() for column in columns], *texts[1:]]
    ]
    marked = [
        "<tr>" + "".join(f'<{tag} style="{_CELL}">{escaped(cell)}</{tag}>' for cell in row) + "</tr>"
        for tag, row in zip(["th"] + ["td"] * len(texts), texts, strict=False)
    ]
    return "\n".join(lines), f"<table>{''.join(marked)}</table>"


def fields(title: str, values: dict[str, object]) -> tuple[str, str]:
    """Return a title and named values as text and as HTML. Values that are None or empty are left out."""
    shown = {name: _plain(value) for name, value in values.items() if value not in (None, "")}
    width = max(map(len, shown), default=0)
    lines = [title, *(f"  {name:<{width}}  {value}" for name, value in shown.items())]
    rows = "".join(
        f'<tr><th style="{_CELL}">{escaped(name)}</th><td style="{_CELL}">{escaped(value)}</td></tr>'
        for name, value in shown.items()
    )
    return "\n".join(lines), f"<b>{escaped(title)}</b><table>{rows}</table>"


def bar(done: int, failed: int, total: int) -> str:
    """Return a progress bar as HTML, for which notebooks need no widgets."""
    widths = [100 * part / max(total, 1) for part in (done, failed)]
    parts = "".join(
        f'<div style="width:{width:.1f}%;background:{colour}"></div>'
        for width, colour in zip(widths, ("#2e7d32", "#c62828"), strict=True)
    )
    style = "display:flex;width:20em;height:.8em;border:1px solid #888;overflow:hidden"
    return (
        f'<div role="progressbar" aria-valuenow="{done + failed}" aria-valuemax="{total}" style="{style}">{parts}</div>'
    )


def progress(tasks: dict[str, int]) -> str:
    """Return the number of tasks in each state that has some."""
    states = ("completed", "failed", "cancelled", "timeout", "out_of_memory", "node_fail", "preempted", "pending")
    counts = [(state, tasks.get(state, 0)) for state in states]
    counts.insert(1, ("running", tasks.get("live", 0)))
    return ", ".join(f"{count} {state.replace('_', ' ')}" for state, count in counts if count)


def size(count: int) -> str:
    """Return a number of bytes for people."""
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if amount == int(amount) else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.0f} GiB" if amount == int(amount) else f"{amount:.1f} GiB"


def clock(seconds: float) -> str:
    """Return a duration such as ``1:05`` or ``2:00:31``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    # Names are chosen by others: what they contain must not move the cursor of a terminal.
    return "".join(character if character.isprintable() else "�" for character in str(value))
