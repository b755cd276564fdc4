"""Forwarding, and what it does to an announced default route."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.forwarding import check_forwarding
from qtunnel.cli.checks.proc_files import ProcFiles

Make = Callable[..., ProcFiles]


def files(four: int, six: int, accept_ra: int = 1) -> dict[str, str]:
    return {
        "sys/net/ipv4/ip_forward": str(four),
        "sys/net/ipv6/conf/all/forwarding": str(six),
        "sys/net/ipv6/conf/eth0/accept_ra": str(accept_ra),
    }


@pytest.mark.parametrize(
    ("four", "six", "words"),
    [(0, 0, "off"), (1, 0, "on for IPv4"), (0, 1, "on for IPv6"), (1, 1, "on for IPv4 and IPv6")],
)
def test_what_is_on_is_said(proc_of: Make, four: int, six: int, words: str) -> None:
    (finding,) = check_forwarding(proc_of(files(four, six)), [])
    assert finding.found == words


@pytest.mark.parametrize(("accept_ra", "is_lost"), [(0, False), (1, True), (2, False)])
def test_an_announced_route_that_forwarding_would_cost_is_told(
    proc_of: Make, accept_ra: int, is_lost: bool
) -> None:
    findings = check_forwarding(proc_of(files(0, 0, accept_ra)), ["eth0"])
    assert (findings[-1].level is Level.WARNING) is is_lost
    if is_lost:
        assert "sysctl -w net.ipv6.conf.eth0.accept_ra=2" in findings[-1].remedy


def test_an_unreadable_sysctl_is_not_checked(proc_of: Make) -> None:
    assert check_forwarding(proc_of(), [])[0].level is Level.NOT_CHECKED
