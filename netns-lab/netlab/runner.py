"""Runs experiments: alternating between tunnels, printing progress and tables, and keeping it all as JSON."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from netlab import table
from netlab.errors import LabError
from netlab.experiment import LAB_DROPS, Experiment, Trial
from netlab.judge import Judge
from netlab.machine import NOISY_STEAL, CpuTimes, Machine
from netlab.results import Outcome, Sample, Verdict
from netlab.tunnels.base import NotApplicable, Tunnel
from netlab.tunnels.none import NoTunnel


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. settings: of parameters, as said. runs None: as the experiment says (full: its full number)."""

    experiments: Sequence[Experiment]
    tunnels: Sequence[type[Tunnel]]
    settings: Mapping[str, str] = field(default_factory=dict)
    ablation: Mapping[str, str] = field(default_factory=dict)
    runs: int | None = None
    full: bool = False
    seed: int = 1
    backend: str | None = None
    control: bool = True


@dataclass(slots=True, kw_only=True)
class Report:
    """One experiment, done on all tunnels."""

    experiment: Experiment
    parameters: Mapping[str, Any]
    seed: int
    backend: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    control: Outcome | None = None
    """Plain IP, if it was measured beside the tunnels and not as one of them; its verdict does not count."""

    def verdict(self) -> Verdict:
        """Return the worst over the tunnels."""
        return Verdict.of([outcome.verdict() for outcome in self.outcomes])

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "experiment": self.experiment.name,
            "number": self.experiment.number,
            "title": self.experiment.title,
            "parameters": dict(self.parameters),
            "seed": self.seed,
            "backend": self.backend,
            "verdict": self.verdict().name.lower(),
            "tunnels": [outcome.as_dict() for outcome in self.outcomes],
            "control": None if self.control is None else self.control.as_dict(),
        }


def run(plan: Plan) -> list[Report]:
    """Run all experiments of a plan; LabError before anything starts if a setting fits none of them."""
    known = {name for experiment in plan.experiments for name in experiment.parameters}
    if unknown := set(plan.settings) - known:
        raise LabError(f"no parameter {', '.join(sorted(unknown))} here; there are: {', '.join(sorted(known))}")
    if not plan.experiments or not plan.tunnels or (plan.runs is not None and plan.runs < 1):
        raise LabError("there must be an experiment, a tunnel and a run at least")
    for tunnel in plan.tunnels:
        tunnel.install()
    machine = Machine.here()
    print(f"machine: {machine.processor}, {machine.cores} cores, Linux {machine.kernel}", flush=True)
    return [_run_one(experiment, plan) for experiment in plan.experiments]


def verdict_of(reports: Sequence[Report]) -> Verdict:
    """Return the worst of all."""
    return Verdict.of([report.verdict() for report in reports])


def write_json(reports: Sequence[Report], file: Path) -> None:
    """Write everything known into a file."""
    found = {
        "machine": Machine.here().as_dict(),
        "verdict": verdict_of(reports).name.lower(),
        "experiments": [report.as_dict() for report in reports],
    }
    file.write_text(json.dumps(_plain(found), indent=1, allow_nan=False) + "\n")


def print_summary(reports: Sequence[Report]) -> None:
    """Print one line an experiment and tunnel, and the last line of the run."""
    if len(reports) > 1 or len(reports[0].outcomes) > 1:
        rows = [
            (report.experiment.number, report.experiment.name, outcome.tunnel, _word(outcome))
            for report in reports
            for outcome in report.outcomes
        ]
        print("\n" + table.render(("", "experiment", "tunnel", "verdict"), rows), flush=True)
    words = {Verdict.HOLDS: "every criterion holds", Verdict.FAILS: "FAILS", Verdict.INCONCLUSIVE: "inconclusive"}
    verdict = verdict_of(reports)
    criteria = [c for report in reports for outcome in report.outcomes for c in outcome.criteria]
    if verdict is Verdict.HOLDS and all(criterion.bound == "-" for criterion in criteria):
        words[verdict] = "no criterion applied, so none failed"
    print(f"\nverdict: {words[verdict]}", flush=True)


def _plain(value: Any) -> Any:
    """Return a value as JSON can say it: it has neither infinity nor NaN, which become words."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _run_one(experiment: Experiment, plan: Plan) -> Report:
    parameters = {name: parameter.default for name, parameter in experiment.parameters.items()}
    for name, text in plan.settings.items():
        if name in experiment.parameters:
            parameters[name] = _parse(experiment, name, text)
    runs = plan.runs if plan.runs is not None else (experiment.full_runs if plan.full else experiment.runs)
    print(f"\n=== {experiment.number} {experiment.name}: {experiment.title}".replace("===  ", "=== "), flush=True)
    shown = ", ".join(f"{name}={value}" for name, value in parameters.items())
    print(f"    {runs} run{'s' if runs > 1 else ''}, seed {plan.seed}{', ' + shown if shown else ''}", flush=True)
    report = Report(experiment=experiment, parameters=parameters, seed=plan.seed)
    kinds = list(plan.tunnels)
    has_control = experiment.control and plan.control and NoTunnel not in kinds
    outcomes = {kind: Outcome(tunnel=kind.name) for kind in ([NoTunnel] if has_control else []) + kinds}
    for number in range(runs):
        for kind, outcome in outcomes.items():
            if not outcome.not_applicable and not outcome.error:
                _sample(experiment, kind, outcome, number, parameters, plan, report)
    control = outcomes.get(NoTunnel)
    for kind, outcome in outcomes.items():
        if outcome.samples:
            other = control if kind is not NoTunnel else None
            judge_outcome(experiment, Judge(outcome, parameters, other, kind.lacks))
        if kind in kinds:
            report.outcomes.append(outcome)
        else:
            report.control = outcome
    _print_outcomes(report)
    return report


def judge_outcome(experiment: Experiment, judge: Judge) -> None:
    """Let an experiment judge what was measured; an outcome about which it can say nothing fails."""
    outcome = judge.outcome
    for name in outcome.names():
        if name.startswith(LAB_DROPS) and outcome.values(name):
            judge.doubt("packets lost by the lab itself", name)
    try:
        experiment.judge(judge)
    except Exception as error:  # as with measuring: it must not cost the results of the others
        outcome.error = outcome.error or f"fault in the judgement: {type(error).__name__}: {error}"
        traceback.print_exc()
    if not outcome.criteria:
        outcome.error = outcome.error or "nothing was measured that could be judged"


def _sample(
    experiment: Experiment,
    kind: type[Tunnel],
    outcome: Outcome,
    number: int,
    parameters: Mapping[str, Any],
    plan: Plan,
    report: Report,
) -> None:
    """Do one run on one tunnel; what goes wrong becomes part of the outcome."""
    sample = Sample(tunnel=kind.name, number=number + 1, seed=plan.seed + 1000 * number)
    print(f"    {kind.name}, run {number + 1}:", flush=True)
    trial = Trial(
        parameters=parameters,
        tunnel=kind,
        sample=sample,
        backend=plan.backend,
        ablation={} if kind is NoTunnel else plan.ablation,
    )
    before = CpuTimes.now()
    try:
        for feature in experiment.needs:
            trial.need(feature)
        experiment.measure(trial)
    except NotApplicable as error:
        outcome.not_applicable = str(error)
        trial.say(f"not applicable: {error}")
        return
    except LabError as error:
        outcome.error = str(error)
        trial.say(f"FAILED: {error}")
        return
    except Exception as error:  # an experiment's own fault must not cost the results of the others
        outcome.error = f"fault in the experiment: {type(error).__name__}: {error}"
        traceback.print_exc()
        return
    finally:
        report.backend = trial.backend_used or report.backend
    sample.seconds = sample.elapsed()
    sample.steal = CpuTimes.now().steal_since(before)
    trial.say(f"took {sample.seconds:.0f} s, steal {sample.steal:.1%}, spin {sample.calibration:.0f} MB/s")
    if sample.steal > NOISY_STEAL:
        trial.say(f"WARNING: {sample.steal:.0%} of the CPU was stolen; rates and times of this run prove nothing")
    outcome.samples.append(sample)


def _print_outcomes(report: Report) -> None:
    """Print one row a criterion, the tunnels side by side."""
    outcomes = report.outcomes if report.control is None else [*report.outcomes, report.control]
    bounds = {c.name: c.bound for outcome in outcomes for c in outcome.criteria}
    rows = [(name, bound, *(_cell(outcome, name) for outcome in outcomes)) for name, bound in bounds.items()]
    header = ("criterion", "bound", *(outcome.tunnel for outcome in outcomes))
    if report.backend:
        print(f"    links by: {report.backend}", flush=True)
    if rows:
        print("\n" + table.render(header, rows), flush=True)
    for outcome in outcomes:
        if reason := outcome.not_applicable or outcome.error:
            print(f"\n{outcome.tunnel}: {_word(outcome)}: {reason.splitlines()[0]}", flush=True)


def _cell(outcome: Outcome, name: str) -> str:
    """Return what a tunnel's column says about a criterion."""
    for criterion in outcome.criteria:
        if criterion.name == name:
            word = "" if criterion.bound == "-" else f"  {_WORDS[criterion.verdict]}"
            return criterion.value + word + (f" ({criterion.note})" if criterion.note else "")
    return "-"


_WORDS = {Verdict.HOLDS: "ok", Verdict.FAILS: "FAILS", Verdict.INCONCLUSIVE: "inconclusive"}


def _word(outcome: Outcome) -> str:
    return "not applicable" if outcome.not_applicable else _WORDS[outcome.verdict()]


def _parse(experiment: Experiment, name: str, text: str) -> Any:
    try:
        return experiment.parameters[name].parse(text)
    except ValueError as error:
        kinds = {int: "a whole number, not negative", float: "a number, not negative", str: "text"}
        kind = kinds[type(experiment.parameters[name].default)]
        raise LabError(f"--set {name}={text}: it must be {kind}") from error
