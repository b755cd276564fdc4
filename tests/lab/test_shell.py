"""Commands of `lab shell`: a mistake costs a line, not the network."""

from unittest.mock import MagicMock

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from netlab import shell
from netlab.errors import LabError


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("mtu q 1400", "no path q; there are: r"),
        ("mtu r", "a word is missing"),
        ("mtu r big", "big"),
        ("dead r yes", "must be on or off"),
        ("fly r high", "no command fly"),
        ("shape r speed=1", "no setting speed; there are: rate"),
    ],
)
def test_mistakes_are_named(line, complaint):
    with pytest.raises((LabError, ValueError), match=complaint):
        shell.obey(MagicMock(paths={"r": MagicMock()}), line.split())


def test_what_the_kernel_refuses_does_not_end_the_shell(monkeypatch, capsys):
    path = MagicMock()
    path.set_mtu.side_effect = NetlinkError(22, "Invalid argument")
    lines = iter(["mtu r 4294967296", "quit"])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(lines))
    shell._prompt(MagicMock(paths={"r": path}))
    assert "Invalid argument" in capsys.readouterr().out
