"""Every experiment can fail: what was not measured, or is no number, never holds."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import MagicMock

import pytest

from netlab import runner
from netlab.errors import LabError, NotReadyError
from netlab.experiment import Experiment, Trial
from netlab.experiments import EXPERIMENTS
from netlab.experiments.small_packets import SmallPackets
from netlab.experiments.throughput import Throughput
from netlab.iperf import Flow
from netlab.judge import Judge
from netlab.results import Outcome, Sample, Verdict
from netlab.selftest import SelfTest
from netlab.tunnels import TUNNELS
from netlab.tunnels.none import NoTunnel

ALL = [*EXPERIMENTS.values(), SelfTest()]
BOUNDLESS = {"throughput", "small-packets"}
"""Experiments that only report; they refuse to in measure() if nothing came through."""

SIMULATED = {"pmtu-card"}
"""Experiments without a network, so that there is no tunnel that could fail to come up."""


class Same(dict[str, float]):
    """Metrics that all have one value, whatever they are called."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def get(self, _name: str, _default: object = None) -> float:
        return self._value


def judged(experiment: Experiment, *metrics: dict[str, float], lacks: frozenset = frozenset()) -> Outcome:
    outcome = Outcome(tunnel="x")
    for number, found in enumerate(metrics):
        outcome.samples.append(Sample(tunnel="x", number=number + 1, seed=1, metrics=found))
    parameters = {name: parameter.default for name, parameter in experiment.parameters.items()}
    runner.judge_outcome(experiment, Judge(outcome, parameters, None, lacks))
    return outcome


def by_name(experiment: Experiment) -> str:
    return experiment.name


@pytest.mark.parametrize("lacks", [frozenset(), *(t.lacks for t in TUNNELS.values())], ids=["", *TUNNELS])
@pytest.mark.parametrize("experiment", ALL, ids=by_name)
def test_nothing_measured_fails_every_criterion_with_a_reason(experiment, lacks):
    outcome = judged(experiment, {}, lacks=lacks)
    assert outcome.verdict() is Verdict.FAILS
    assert outcome.criteria or "nothing was measured" in outcome.error
    for criterion in outcome.criteria:
        assert (criterion.verdict, criterion.value) == (Verdict.FAILS, "-"), criterion
        assert "not measured" in criterion.note, criterion


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("experiment", ALL, ids=by_name)
def test_what_is_no_number_fails_every_criterion_even_in_one_run_of_several(experiment, number):
    runs = [Same(0.0) for _ in range(number)]
    runs[-1] = Same(math.nan)
    outcome = judged(experiment, *runs)
    assert outcome.verdict() is not Verdict.HOLDS
    for criterion in outcome.criteria:
        if criterion.bound != "-" and criterion.name != "packets lost by the lab itself":
            assert criterion.verdict is Verdict.FAILS, criterion
            assert "not a number" in criterion.note, criterion


@pytest.mark.parametrize("experiment", ALL, ids=by_name)
def test_what_one_run_of_several_did_not_measure_fails_every_criterion(experiment):
    outcome = judged(experiment, Same(0.0), {})
    bounded = [criterion for criterion in outcome.criteria if criterion.bound != "-"]
    assert all(criterion.verdict is Verdict.FAILS for criterion in bounded), bounded
    assert bounded or experiment.name in BOUNDLESS


@pytest.mark.parametrize("experiment", [e for e in ALL if e.name not in BOUNDLESS], ids=by_name)
def test_all_zeros_as_empty_captures_and_dead_links_give_do_not_hold(experiment):
    assert judged(experiment, Same(0.0)).verdict() is Verdict.FAILS


@pytest.mark.parametrize("experiment", ALL, ids=by_name)
def test_report_of_infinity_never_stands_alone_as_success(experiment):
    # No reply at all makes a median infinite.
    assert judged(experiment, Same(math.inf)).verdict() is not Verdict.HOLDS


class NeverUp(NoTunnel):
    """Lacks nothing but a server that starts."""

    name = "never-up"
    lacks = frozenset()

    def start_server(self) -> None:
        raise NotReadyError("serve on s ended with code 1")


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS.values() if e.name not in SIMULATED], ids=by_name)
def test_tunnel_that_never_comes_up_fails_and_says_so(experiment, monkeypatch):
    @contextmanager
    def network(*_args: object, **_settings: object) -> Iterator[MagicMock]:
        yield MagicMock()

    monkeypatch.setattr(Trial, "network", network)
    (report,) = runner.run(runner.Plan(experiments=[experiment], tunnels=[NeverUp], control=False))
    assert report.verdict() is Verdict.FAILS
    assert report.outcomes[0].error == "serve on s ended with code 1"


@pytest.mark.parametrize("experiment", [Throughput(), SmallPackets()], ids=by_name)
def test_where_nothing_came_through_there_is_no_figure_to_report(experiment, monkeypatch):
    nothing = Flow(
        mbps=0.0,
        series=[],
        retransmits=0,
        mss=1400,
        lost=0,
        packets=0,
        bytes=0,
        sender_cpu=0.0,
        receiver_cpu=0.0,
    )
    monkeypatch.setattr("netlab.iperf.run", lambda *_args, **_settings: nothing)
    parameters = {name: parameter.default for name, parameter in experiment.parameters.items()}
    trial = MagicMock(parameters=parameters)
    trial.bring_up.return_value.__enter__.return_value.inner.daemon = None
    trial.bring_up.return_value.__enter__.return_value.tunnel.server = None
    trial.bring_up.return_value.__exit__.return_value = False
    with pytest.raises(LabError, match="arrived"):
        experiment.measure(trial)
