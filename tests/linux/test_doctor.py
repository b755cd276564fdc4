"""`qtunnel doctor` as root, in a namespace of its own: what needs a real kernel, also where it must fail."""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
from typing import Any

import pytest

from qtunnel.cli.checks.dont_fragment import check_dont_fragment
from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.privileges import check_tun
from qtunnel.cli.checks.proc_files import ProcFiles
from qtunnel.linux.tun import Tun
from qtunnel.linux.udp import UdpSocket
from tests.linux.namespaces import Namespace, Namespaces

pytestmark = pytest.mark.root

IP_MTU_DISCOVER = 10
PMTUDISC_DONT = 0


def doctor(host: Namespace) -> list[dict[str, Any]]:
    text = host.run(f"{sys.executable} -m qtunnel doctor --json", check=False)
    findings: list[dict[str, Any]] = json.loads(text)
    return findings


def about(findings: list[dict[str, Any]], subject: str) -> list[str]:
    return [finding["level"] for finding in findings if finding["subject"] == subject]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No profile, server or tunnel of this machine has anything to do with it."""
    for name in ("STATE", "PROFILE", "RUNTIME"):
        monkeypatch.setenv(f"QTUNNEL_{name}_DIR", str(tmp_path / name.lower()))


@pytest.mark.usefixtures("elsewhere")
def test_a_sound_host_has_no_error(lab: Namespaces) -> None:
    findings = doctor(lab.add("h"))
    assert [finding for finding in findings if finding["level"] == "error"] == []
    assert about(findings, "TUN device") == ["ok"]
    assert about(findings, "DF on the wire") == ["ok"] * 4
    assert about(findings, "nft")[0] == "ok"


@pytest.mark.usefixtures("elsewhere")
def test_nothing_is_left_behind(lab: Namespaces) -> None:
    host = lab.add("h")
    before = (host.run("ip -o link"), host.run("nft list ruleset"))
    doctor(host)
    assert (host.run("ip -o link"), host.run("nft list ruleset")) == before


@pytest.mark.usefixtures("elsewhere")
def test_what_is_wrong_with_a_host_is_named_with_interface_and_value(lab: Namespaces) -> None:
    host, other = lab.add("h"), lab.add("o")
    lab.join(host, "lan", other, "lan")
    host.sysctl("net/ipv4/conf/lan/rp_filter", "1")
    host.run("nft add table ip t")
    host.run("nft add chain ip t f '{ type filter hook forward priority 0; policy drop; }'")
    findings = doctor(host)
    assert about(findings, "firewall") == ["warning"]
    (strict,) = [item for item in findings if item["subject"] == "reverse-path filter" and "lan" in item["found"]]
    assert "net.ipv4.conf.lan.rp_filter=1" in strict["found"]


def test_a_socket_without_df_is_caught_on_the_wire(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = UdpSocket.open

    def open_without_df(*arguments: Any, **settings: Any) -> UdpSocket:
        udp = opened(*arguments, **settings)
        with socket.socket(fileno=os.dup(udp.fileno())) as copy:
            if copy.family == socket.AF_INET:
                copy.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_DONT)
        return udp

    monkeypatch.setattr(UdpSocket, "open", open_without_df)
    levels = [finding.level for finding in check_dont_fragment(ProcFiles())]
    assert levels == [Level.ERROR, Level.ERROR, Level.OK, Level.OK]


def test_a_tun_device_that_cannot_be_made_says_what_to_type(
    lab: Namespaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tun, "open", functools.partial(Tun.open, device="/dev/net/none"))
    with lab.add("h").entered():
        (finding,) = check_tun(ProcFiles())
    assert finding.level is Level.ERROR
    assert finding.remedy
