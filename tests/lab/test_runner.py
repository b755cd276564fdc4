"""Running experiments: what goes wrong in one costs the others nothing, and everything ends up in the JSON."""

import json
from typing import ClassVar

import pytest

from netlab import runner
from netlab.errors import LabError
from netlab.experiment import Experiment, Parameter, Trial
from netlab.judge import Judge
from netlab.results import Verdict
from netlab.tunnels.base import NotApplicable
from netlab.tunnels.none import NoTunnel
from netlab.tunnels.openvpn import OpenVpn


class Fake(Experiment):
    """Measures nothing of a network: what it does is said by its parameter."""

    name = "fake"
    title = "a fake"
    parameters: ClassVar = {"answer": Parameter(42, "to everything")}

    def measure(self, trial: Trial) -> None:
        trial.event("asked")
        trial.points("doubt", [(0.0, 1.0)], since=0.5)
        trial.metric("answer", trial.parameters["answer"])

    def judge(self, judge: Judge) -> None:
        judge.at_most("the answer", "answer", 42)


class Failing(Fake):
    """Fails in a way of its own."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def measure(self, trial: Trial) -> None:
        raise self._error


class Other(NoTunnel):
    """A second tunnel that needs nothing."""

    name = "other"


def run(*experiments: Experiment, **changes: object) -> list[runner.Report]:
    settings = {"experiments": experiments, "tunnels": [NoTunnel, Other], **changes}
    return runner.run(runner.Plan(**settings))


def test_tunnels_take_turns_within_each_repetition(capsys):
    run(Fake(), runs=2)
    lines = [
        line.strip() for line in capsys.readouterr().out.splitlines() if "run " in line and line.endswith(":")
    ]
    assert lines == ["none, run 1:", "other, run 1:", "none, run 2:", "other, run 2:"]


def test_setting_changes_a_parameter_and_so_the_verdict():
    assert runner.verdict_of(run(Fake())) is Verdict.HOLDS
    assert runner.verdict_of(run(Fake(), settings={"answer": "43"})) is Verdict.FAILS


def test_each_run_has_a_seed_of_its_own_that_follows_from_the_one_given():
    (report,) = run(Fake(), runs=2, seed=7)
    seeds = [[sample.seed for sample in outcome.samples] for outcome in report.outcomes]
    assert seeds == [[7, 1007], [7, 1007]]


def test_control_is_measured_and_kept_but_does_not_count():
    class Controlled(Fake):
        control = True

        def measure(self, trial: Trial) -> None:
            trial.metric("answer", 43 if trial.sample.tunnel == "none" else 42)

    (report,) = run(Controlled(), tunnels=[Other])
    assert [outcome.tunnel for outcome in report.outcomes] == ["other"]
    assert report.control is not None
    assert report.control.verdict() is Verdict.FAILS
    assert report.verdict() is Verdict.HOLDS
    assert report.as_dict()["control"]["runs"][0]["metrics"] == {"answer": 43}


def test_what_a_tunnel_lacks_is_no_failure():
    (report,) = run(Failing(NotApplicable("it lacks wings")))
    assert {outcome.not_applicable for outcome in report.outcomes} == {"it lacks wings"}
    assert report.verdict() is Verdict.HOLDS


def test_error_fails_the_experiment_and_the_next_one_runs():
    reports = run(Failing(LabError("it did not start")), Failing(ZeroDivisionError("oh")), Fake())
    assert [report.verdict() for report in reports] == [Verdict.FAILS, Verdict.FAILS, Verdict.HOLDS]
    assert "ZeroDivisionError" in reports[1].outcomes[0].error


def test_fault_in_judging_fails_that_experiment_alone():
    class Unfair(Fake):
        def judge(self, judge: Judge) -> None:
            raise ZeroDivisionError("oh")

    reports = run(Unfair(), Fake())
    assert [report.verdict() for report in reports] == [Verdict.FAILS, Verdict.HOLDS]
    assert "fault in the judgement: ZeroDivisionError" in reports[0].outcomes[0].error


def test_packets_lost_by_the_lab_itself_make_a_success_inconclusive_and_excuse_no_failure():
    class Late(Fake):
        def measure(self, trial: Trial) -> None:
            super().measure(trial)
            trial.metric("dropped_by_the_lab_r", 7)

    assert runner.verdict_of(run(Late())) is Verdict.INCONCLUSIVE
    assert runner.verdict_of(run(Late(), settings={"answer": "43"})) is Verdict.FAILS


@pytest.mark.parametrize("changes", [{"runs": 0}, {"runs": -1}, {"tunnels": []}])
def test_no_run_at_all_is_refused_rather_than_held(changes):
    with pytest.raises(LabError, match="at least"):
        run(Fake(), **changes)


def test_json_has_machine_parameters_seed_metrics_series_events_and_criteria(tmp_path):
    file = tmp_path / "found.json"
    runner.write_json(run(Fake()), file)
    found = json.loads(file.read_text())
    assert set(found["machine"]) == {"kernel", "cores", "processor", "memory_mb", "python"}
    (report,) = found["experiments"]
    assert (report["experiment"], report["parameters"], report["seed"]) == ("fake", {"answer": 42}, 1)
    assert report["verdict"] == found["verdict"] == "holds"
    sample = report["tunnels"][0]["runs"][0]
    assert sample["metrics"] == {"answer": 42}
    assert sample["series"] == {"doubt": [[0.5, 1.0]]}
    assert sample["events"][0][1] == "asked"
    assert 0 <= sample["steal"] <= 1
    assert report["tunnels"][0]["criteria"][0]["verdict"] == "holds"


def test_json_has_neither_nan_nor_infinity(tmp_path):
    class Endless(Fake):
        def measure(self, trial: Trial) -> None:
            trial.metric("answer", float("inf"))
            trial.points("doubt", [(0.0, float("nan"))], since=0.0)

    file = tmp_path / "found.json"
    runner.write_json(run(Endless()), file)
    sample = json.loads(file.read_text(), parse_constant=pytest.fail)["experiments"][0]["tunnels"][0]["runs"][0]
    assert sample["metrics"] == {"answer": "inf"}
    assert sample["series"] == {"doubt": [[0.0, "nan"]]}


def test_openvpn_says_what_it_lacks():
    assert {feature.name for feature in OpenVpn.lacks} == {"NAMES", "ABLATIONS"}
