"""Pictures: each series of each experiment over time, one tunnel a colour, events as lines, by matplotlib."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg

from netlab.errors import LabError
from netlab.results import Outcome
from netlab.runner import Report

AT_ONCE: Final = 0.2
"""Seconds between events that share a line and a text, which would cover one another."""
MANY_POINTS: Final = 300
MOST_TEXT: Final = 34
"""Characters in a line of the text beside an event."""
GAP: Final = 2.5
"""Pause, in usual steps of a series, after which a new line begins."""

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def check(file: Path) -> None:
    """Raise LabError if a file's name does not end like that of a picture that can be drawn."""
    kinds = sorted(FigureCanvasAgg.get_supported_filetypes())
    if file.suffix[1:].lower() not in kinds:
        raise LabError(f"--plot {file}: its name must end with one of: .{', .'.join(kinds)}")


def draw(reports: Sequence[Report], file: Path) -> None:
    """Draw all series of all reports that have any, one panel for each series, below one another."""
    panels = [(report, name) for report in reports for name in _series_names(report)]
    figure, rows = pyplot.subplots(max(1, len(panels)), 1, figsize=(11, 3.2 * max(1, len(panels))), squeeze=False)
    for axes, (report, name) in zip(rows[:, 0], panels, strict=False):
        _draw_panel(axes, report, name)
    if not panels:
        rows[0, 0].text(0.5, 0.5, "nothing here was measured over time", ha="center")
        rows[0, 0].set_axis_off()
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _series_names(report: Report) -> list[str]:
    return list(
        dict.fromkeys(name for outcome in report.outcomes for sample in outcome.samples for name in sample.series)
    )


def _draw_panel(axes: Axes, report: Report, name: str) -> None:
    experiment = report.experiment
    axes.set_title(f"{experiment.number} {experiment.name}: {name}".strip(), loc="left", fontsize=10)
    colours = pyplot.rcParams["axes.prop_cycle"].by_key()["color"]
    for outcome, colour in zip(report.outcomes, colours, strict=False):
        _draw_outcome(axes, outcome, name, colour)
    axes.set_xlabel("seconds since the run began")
    axes.set_ylabel(name)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    # Above the panel, where it covers nothing.
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, frameon=False, fontsize=8)


def _draw_outcome(axes: Axes, outcome: Outcome, name: str, colour: str) -> None:
    for sample in outcome.samples:
        points = sample.series.get(name, [])
        # Thousands of points (round trips) are dots, a handful (throughput by the second) a line.
        style = "." if len(points) > MANY_POINTS else ".-"
        label: str | None = outcome.tunnel if sample is outcome.samples[0] else None
        for run in _without_gaps(points, [at for at, _ in sample.events]):
            times, values = zip(*run, strict=True)
            axes.plot(times, values, style, color=colour, ms=3, lw=1, label=label)
            label = None
    for number, (at, what) in enumerate(_together(outcome.samples[0].events) if outcome.samples else ()):
        axes.axvline(at, color=colour, alpha=0.4, lw=0.8, ls="--")
        is_high = number % 2 == 0  # neighbours would cover one another
        axes.annotate(
            textwrap.fill(textwrap.shorten(what, 3 * MOST_TEXT, placeholder=" ..."), MOST_TEXT),
            (at, 0.97 if is_high else 0.03),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=6,
            color=colour,
            va="top" if is_high else "bottom",
            ha="left",  # the first event is at the left edge
            clip_on=True,
        )


def _together(events: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return the events, those at nearly the same time as one."""
    joined: list[tuple[float, str]] = []
    for at, what in events:
        if joined and at - joined[-1][0] < AT_ONCE:
            joined[-1] = (joined[-1][0], f"{joined[-1][1]}; {what}")
        else:
            joined.append((at, what))
    return joined


def _without_gaps(points: list[tuple[float, float]], events: list[float]) -> list[list[tuple[float, float]]]:
    """Cut a series at events and where it pauses, so that no line leads from one transfer to the next."""
    runs: list[list[tuple[float, float]]] = []
    steps = sorted(b[0] - a[0] for a, b in itertools.pairwise(points))
    usual = steps[len(steps) // 2] if steps else 0.0
    for point in points:
        last = runs[-1][-1][0] if runs else float("-inf")
        if point[0] - last > GAP * usual or any(last < at < point[0] for at in events):
            runs.append([])
        runs[-1].append(point)
    return runs
