"""`qtunnel mtu`: what is typed, what is printed, how it ends."""

from __future__ import annotations

import socket

import pytest

from qtunnel.aio.measure_mtu import MtuMeasurement, MtuStep
from qtunnel.cli.main import run_command
from qtunnel.cli.mtu import show, split_target
from qtunnel.errors import ConfigError


@pytest.fixture
def unused_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_errors_have_their_exit_status(capsys: pytest.CaptureFixture[str], unused_port: int) -> None:
    assert run_command(["mtu", f"127.0.0.1:{unused_port}", "--timeout", "0.3"]) == 6
    assert "no QUIC connection" in capsys.readouterr().err
    assert run_command(["mtu", "[::1"]) == 3
    assert "[ADDRESS]:PORT" in capsys.readouterr().err


def test_an_unfinished_measurement_is_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = MtuMeasurement(
        remote="[2001:db8::1]:443",
        version=6,
        mtu=1280,
        limited_by="path",
        is_complete=False,
        round_trip=0.04,
        round_trips=9.0,
        probes=12,
        probe_bytes=15_000,
        probes_lost=12,
        steps=(MtuStep(0.0, 1280, "flight 1 asked for link MTU 1500"),),
    )
    show(found)
    out = capsys.readouterr().out
    assert "to [2001:db8::1]:443, IPv6: path MTU 1280 (at least: the time was over)" in out
    assert "0.0 ms  flight 1 asked for link MTU 1500" in out
    assert "12 probes" in out


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("example.net", ("example.net", 443)),
        ("example.net:4433", ("example.net", 4433)),
        ("2001:db8::1", ("2001:db8::1", 443)),
        ("[2001:db8::1]", ("2001:db8::1", 443)),
        ("[2001:db8::1]:4433", ("2001:db8::1", 4433)),
    ],
)
def test_targets(target: str, expected: tuple[str, int]) -> None:
    assert split_target(target) == expected


@pytest.mark.parametrize("target", ["", ":443", "host:", "host:0", "host:70000", "host:x", "[::1]443", "[::1"])
def test_what_is_no_target(target: str) -> None:
    if target == "host:":
        assert split_target(target) == ("host", 443)
        return
    with pytest.raises(ConfigError):
        split_target(target)
