"""Privileges, TUN and nft, each as a finding with what to type."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from qtunnel.cli.checks import privileges
from qtunnel.cli.checks.finding import Finding, Level
from qtunnel.cli.checks.privileges import check_nft, check_privileges, check_tun
from qtunnel.cli.checks.proc_files import CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, ProcFiles
from qtunnel.errors import SystemSetupError
from qtunnel.linux.tun import Tun

Make = Callable[..., ProcFiles]
ADMIN = 1 << CAP_NET_ADMIN


def levels(findings: list[Finding]) -> list[Level]:
    return [finding.level for finding in findings]


def test_with_net_admin_all_can_be_set_up(proc_of: Make) -> None:
    assert levels(check_privileges(proc_of(capabilities=ADMIN | 1 << CAP_NET_BIND_SERVICE))) == [Level.OK]


def test_without_root_it_says_what_works_and_what_does_not(proc_of: Make) -> None:
    proc = proc_of({"sys/net/ipv4/ip_unprivileged_port_start": "1024"})
    first, second = check_privileges(proc)
    assert "--no-tun" in first.found
    assert "below 1024" in second.found
    assert levels(check_tun(proc)) == [Level.NOT_CHECKED]


def test_a_tun_that_cannot_be_made_is_an_error_with_its_remedy(
    proc_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> Tun:
        raise SystemSetupError("there is no /dev/net/tun", remedy="Type: modprobe tun")

    monkeypatch.setattr(Tun, "open", refuse)
    (finding,) = check_tun(proc_of(capabilities=ADMIN))
    assert finding == Finding("TUN device", Level.ERROR, "there is no /dev/net/tun", "Type: modprobe tun")


def test_a_tun_that_could_be_made_is_removed(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeTun:
        name = "qtdoctor0"
        is_closed = False

        def close(self) -> None:
            self.is_closed = True

    tun = FakeTun()
    monkeypatch.setattr(Tun, "open", lambda *_: tun)
    assert levels(check_tun(proc_of(capabilities=ADMIN))) == [Level.OK]
    assert tun.is_closed


def nft(monkeypatch: pytest.MonkeyPatch, answers: dict[str, tuple[int, str]]) -> None:
    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        code, text = answers[command[1]]
        return subprocess.CompletedProcess(command, code, text, "")

    monkeypatch.setattr(shutil, "which", lambda _: "/usr/sbin/nft")
    monkeypatch.setattr(subprocess, "run", run)


def test_without_nft_masquerade_cannot_work(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (finding,) = check_nft(proc_of(capabilities=ADMIN))
    assert finding.level is Level.WARNING
    assert "apt install nftables" in finding.remedy


def test_nft_is_tried_only_with_privileges(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    nft(monkeypatch, {})
    assert levels(check_nft(proc_of())) == [Level.NOT_CHECKED]


def test_a_kernel_without_masquerade_is_told(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    nft(monkeypatch, {"--check": (1, "")})
    (finding,) = check_nft(proc_of(capabilities=ADMIN))
    assert "modprobe" in finding.remedy


def test_a_firewall_that_drops_what_is_forwarded_is_told(proc_of: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    chains = "table ip filter {\n chain FORWARD {\n  type filter hook forward priority 0; policy drop;\n }\n}\n"
    nft(monkeypatch, {"--check": (0, ""), "list": (0, chains)})
    findings = check_nft(proc_of(capabilities=ADMIN))
    assert levels(findings) == [Level.OK, Level.WARNING]
    assert "policy drop" in findings[1].found
    nft(monkeypatch, {"--check": (0, ""), "list": (0, chains.replace("drop", "accept"))})
    assert levels(check_nft(proc_of(capabilities=ADMIN))) == [Level.OK]


def test_an_nft_that_hangs_is_no_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("nft", 10)

    monkeypatch.setattr(subprocess, "run", hang)
    assert privileges._nft("list") is None
