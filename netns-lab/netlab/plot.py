"""Pictures: each series of each experiment over time, one tunnel a colour, events as lines. (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")  # no display is needed

import matplotlib.pyplot as pyplot

from netlab.results import Outcome
from netlab.runner import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(reports: Sequence[Report], file: Path) -> None:
    """Draw all series of all reports that have any, one panel for each series, below one another."""
    panels = [(report, name) for report in reports for name in _series_names(report)]
    figure, rows = pyplot.subplots(max(1, len(panels)), 1, figsize=(11, 3.2 * max(1, len(panels))), squeeze=False)
    for axes, (report, name) in zip(rows[:, 0], panels, strict=False):
        _draw_panel(axes, report, name)
    if not panels:
        rows[0, 0].text(0.5, 0.5, "no series were measured", ha="center")
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
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right", fontsize=8)


def _draw_outcome(axes: Axes, outcome: Outcome, name: str, colour: str) -> None:
    for sample in outcome.samples:
        points = sample.series.get(name, [])
        label = outcome.tunnel if sample is outcome.samples[0] else None
        # Thousands of points (round trips) are dots, a handful (throughput by the second) a line.
        style = "." if len(points) > 300 else ".-"
        axes.plot(
            [at for at, _ in points], [value for _, value in points], style, color=colour, ms=3, lw=1, label=label
        )
    for at, what in outcome.samples[0].events if outcome.samples else ():
        axes.axvline(at, color=colour, alpha=0.4, lw=0.8, ls="--")
        axes.annotate(
            what[:40],
            (at, 0.97),
            xycoords=("data", "axes fraction"),
            rotation=90,
            fontsize=6,
            va="top",
            ha="right",
        )
