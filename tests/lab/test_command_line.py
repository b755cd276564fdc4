"""The lab's command line: what it lists, and what it says about mistakes."""

import pytest

from netlab import cli
from netlab.experiments import EXPERIMENTS, find
from netlab.tunnels import TUNNELS


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
        (["shell", "moebius"], "no topology moebius"),
    ],
)
def test_mistakes_are_named(arguments, complaint, capsys, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert cli.main(arguments) == 1
    assert complaint in capsys.readouterr().err


def test_without_root_it_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert cli.main(["run", "E1"]) == 1
    assert "sudo" in capsys.readouterr().err
