"""`qtunnel doctor`: every check is made, one that fails is a finding, and errors are the exit status."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qtunnel.aio.control import ControlServer
from qtunnel.cli import doctor
from qtunnel.cli.checks.finding import Finding, Level, error, ok
from qtunnel.cli.checks.proc_files import ProcFiles
from qtunnel.cli.doctor import Tunnels, diagnose
from qtunnel.errors import StateError
from qtunnel.state.join_link import JoinLink
from qtunnel.state.paths import control_socket
from qtunnel.state.profiles import ProfileStore

Runner = Callable[..., Any]

CHECKS = [name for name in vars(doctor) if name.startswith("check_") and name != "check_tunnel"]


@pytest.fixture
def all_well(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CHECKS:
        monkeypatch.setattr(doctor, name, lambda *_, name=name: [ok(name, "fine")])
    monkeypatch.setattr(doctor, "router_advertised_interfaces", list)
    monkeypatch.setattr(doctor, "host_networks", list)


@pytest.mark.usefixtures("all_well")
def test_every_check_is_made(tmp_path: Path) -> None:
    findings = diagnose(ProcFiles(), Tunnels(), tmp_path / "no-server")
    assert {finding.subject for finding in findings} >= set(CHECKS) - {"check_pools"}


@pytest.mark.usefixtures("all_well")
@pytest.mark.parametrize("problem", [StateError("server.json is damaged"), OSError(5, "Input/output error")])
def test_a_check_that_fails_is_a_finding_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, problem: Exception
) -> None:
    def fail(*_: object) -> list[Finding]:
        raise problem

    monkeypatch.setattr(doctor, "check_nft", fail)
    findings = diagnose(ProcFiles(), Tunnels(), tmp_path)
    (finding,) = [finding for finding in findings if finding.level is not Level.OK]
    assert (finding.subject, finding.level, finding.found) == ("nft", Level.NOT_CHECKED, str(problem))


@pytest.mark.usefixtures("all_well")
def test_all_well_is_status_0(run: Runner) -> None:
    outcome = run("doctor")
    assert outcome.code == 0
    assert "ok           check_tun: fine" in outcome.out


@pytest.mark.usefixtures("all_well")
def test_an_error_is_status_14_with_what_to_type(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_tun", lambda _: [error("TUN device", "there is none", "modprobe tun")])
    outcome = run("doctor")
    assert outcome.code == 14
    assert "error        TUN device: there is none\n             -> modprobe tun\n" in outcome.out


@pytest.mark.usefixtures("all_well")
def test_json_has_the_same_findings(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_tun", lambda _: [error("TUN device", "there is none", "modprobe tun")])
    outcome = run("doctor", "--json")
    assert outcome.code == 14
    findings = json.loads(outcome.out)
    assert {
        "subject": "TUN device",
        "level": "error",
        "found": "there is none",
        "remedy": "modprobe tun",
    } in findings


@pytest.mark.usefixtures("all_well")
def test_a_damaged_profile_is_found_without_its_token(run: Runner, world: Any) -> None:
    link = JoinLink(host="a.net", server_name="a.net", user="a", token="a-token-never-shown")
    path = ProfileStore(world.profiles).save("home", link)
    path.chmod(0o644)
    outcome = run("doctor")
    assert outcome.code == 14
    assert "profile home" in outcome.out
    assert "chmod 600" in outcome.out
    assert "a-token-never-shown" not in outcome.out


def test_cpu_time_is_read_from_the_process_that_answered() -> None:
    assert doctor._cpu_seconds(ProcFiles(), {"pid": os.getpid()}) is not None
    assert doctor._cpu_seconds(ProcFiles(), {"pid": "x"}) is None
    assert doctor._cpu_seconds(ProcFiles(), {"pid": 1 << 30}) is None


def test_the_tunnels_devices_are_known() -> None:
    tunnels = Tunnels(after={"a": {"tun": "qtun0"}, "b": {"tun": None}, "c": {}})
    assert tunnels.devices() == {"qtun0"}


async def test_running_tunnels_are_asked_twice(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    async def status() -> dict[str, Any]:
        asked.append(True)
        return {"role": "client", "pid": os.getpid(), "tun": "qtun0", "number": len(asked)}

    monkeypatch.setattr(doctor, "_WATCH_S", 0.001)
    (world.runtime / "left-over").mkdir(mode=0o700)
    async with ControlServer(control_socket(world.runtime, "home"), {"status": status}):
        tunnels = await asyncio.to_thread(doctor._watch_tunnels, ProcFiles())
    assert (tunnels.before["home"]["number"], tunnels.after["home"]["number"]) == (1, 2)
    assert tunnels.devices() == {"qtun0"}
    share = tunnels.cpu_shares["home"]
    assert share is not None
    assert share >= 0


def test_no_running_tunnel_is_nothing_to_watch() -> None:
    assert doctor._watch_tunnels(ProcFiles()) == Tunnels()


@pytest.mark.usefixtures("all_well")
def test_what_limits_a_running_tunnel_is_a_finding(tmp_path: Path) -> None:
    tunnels = Tunnels({"home": {}}, {"home": {"drops": {"queue-full": 7}}}, {"home": 0.1})
    findings = diagnose(ProcFiles(), tunnels, tmp_path)
    assert any("(7 packets dropped in a second)" in finding.found for finding in findings)
