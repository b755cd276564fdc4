"""The lab's command line: what it lists, and what it says about mistakes."""

import pytest

from netlab import cli
from netlab.experiments import EXPERIMENTS, find
from netlab.results import Criterion, Outcome, Verdict
from netlab.runner import Report
from netlab.tunnels import TUNNELS

HOLDS, FAILS, INCONCLUSIVE = Verdict.HOLDS, Verdict.FAILS, Verdict.INCONCLUSIVE


def test_list_shows_every_experiment_parameter_and_tunnel(capsys):
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    for experiment in EXPERIMENTS.values():
        assert experiment.name in shown
        for parameter in experiment.parameters:
            assert parameter in shown
    for tunnel in TUNNELS:
        assert tunnel in shown


def test_experiments_are_found_by_name_and_by_number():
    assert find("E1") is find("overhead") is EXPERIMENTS["overhead"]
    assert find("e14") is EXPERIMENTS["df-bit"]
    assert find("E99") is None


def test_parameters_take_values_of_their_own_type():
    parameter = EXPERIMENTS["shaped"].parameters["rate_mbps"]
    assert parameter.parse("50") == 50.0
    with pytest.raises(ValueError, match="fast"):
        parameter.parse("fast")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "E99"], "no experiment E99"),
        (["run", "E1", "--tunnel", "carrier-pigeon"], "no tunnel carrier-pigeon"),
        (["run", "E1", "--set", "pings"], "must be KEY=VALUE"),
        (["run", "E1", "--set", "colour=red"], "no parameter colour"),
        (["run", "E1", "--set", "pings=-1"], "must be a whole number"),
        (["run", "latency", "--set", "seconds=nan"], "must be a number"),
        (["run", "E1", "--tunnel", ","], "no tunnel is named"),
        (["run", "E1", "--json", "/no/such/directory/x.json"], "cannot be written"),
        (["run", "E1", "--json", "/"], "cannot be written"),
        (["shell", "moebius"], "no topology moebius"),
        (["shell", "path", "--tunnel", "none,qtunnel"], "one tunnel at a time"),
        (["bench", "--peer", "qtunnel"], "compared with"),
        (["bench", "--peer", ""], "no tunnel is named"),
    ],
)
def test_mistakes_are_named(arguments, complaint, capsys, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert cli.main(arguments) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["rnu"],
        ["run"],
        ["run", "E1", "--runs", "0"],
        ["run", "E1", "--runs", "-1"],
        ["run", "E1", "--jso", "x"],
    ],
)
def test_mistake_in_usage_ends_with_1_as_2_means_inconclusive(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 1
    assert "--help` says what there is" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ([[HOLDS, HOLDS], [HOLDS, HOLDS]], 0),
        ([[HOLDS, HOLDS], [HOLDS, INCONCLUSIVE]], 2),
        ([[INCONCLUSIVE, HOLDS], [HOLDS, FAILS]], 1),
        ([[FAILS, INCONCLUSIVE]], 1),
        ([[INCONCLUSIVE, INCONCLUSIVE], [HOLDS, HOLDS]], 2),
    ],
)
def test_exit_code_is_the_worst_of_all_experiments_and_tunnels(verdicts, code, monkeypatch):
    """verdicts: for each experiment those on its tunnels."""
    assert _code_of_run(verdicts, monkeypatch) == code


def test_run_without_any_criterion_does_not_say_that_all_hold(monkeypatch, capsys):
    assert _code_of_run([[None]], monkeypatch) == 0
    assert "no criterion applied" in capsys.readouterr().out


def test_bench_with_a_tunnel_that_failed_is_no_success(monkeypatch):
    report = _report([HOLDS, HOLDS])
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("netlab.bench.run", lambda *_args, **_settings: [report])
    assert cli.main(["bench"]) == 0
    report.outcomes[1].error = "it did not start"
    assert cli.main(["bench"]) == 1


def _code_of_run(verdicts: list[list[Verdict | None]], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("netlab.runner.run", lambda _plan: [_report(each) for each in verdicts])
    return cli.main(["run", "E1"])


def _report(verdicts: list[Verdict | None]) -> Report:
    outcomes = [Outcome(tunnel=f"t{number}") for number in range(len(verdicts))]
    for outcome, verdict in zip(outcomes, verdicts, strict=True):
        if verdict is None:
            outcome.not_applicable = "it lacks wings"
        else:
            outcome.criteria = [Criterion(name="size", value="1", bound="at most 1", verdict=verdict)]
    return Report(experiment=EXPERIMENTS["overhead"], parameters={}, seed=1, outcomes=outcomes)


def test_without_root_it_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert cli.main(["run", "E1"]) == 1
    assert "sudo" in capsys.readouterr().err
