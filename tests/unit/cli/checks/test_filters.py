"""Filters that drop silently: the interface and the value are named (A34)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from qtunnel.cli.checks.filters import check_accept_local, check_reverse_path
from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.proc_files import ProcFiles

Make = Callable[..., ProcFiles]


def rp_filter(**values: int) -> dict[str, str]:
    return {f"sys/net/ipv4/conf/{name}/rp_filter": str(value) for name, value in values.items()}


@pytest.mark.parametrize(
    ("everywhere", "own", "culprit"),
    [(0, 0, None), (1, 0, "all"), (0, 1, "eth0"), (1, 1, "all"), (2, 1, None), (1, 2, None)],
)
def test_the_larger_value_counts_and_its_place_is_named(
    proc_of: Make, everywhere: int, own: int, culprit: str | None
) -> None:
    (finding,) = check_reverse_path(proc_of(rp_filter(all=everywhere, eth0=own)), ())
    if culprit is None:
        assert finding.level is Level.OK
    else:
        assert finding.level is Level.WARNING
        assert f"strict on eth0 (net.ipv4.conf.{culprit}.rp_filter=1)" in finding.found
        assert "sysctl -w net.ipv4.conf.eth0.rp_filter=2" in finding.remedy


def test_strict_on_the_tunnels_own_device_is_an_error(proc_of: Make) -> None:
    findings = check_reverse_path(proc_of(rp_filter(all=1, qtun0=0, lo=0)), {"qtun0"})
    assert [finding.level for finding in findings] == [Level.ERROR]
    assert findings[0].remedy == "sysctl -w net.ipv4.conf.qtun0.rp_filter=2"


def test_unreadable_sysctls_are_not_checked(proc_of: Make) -> None:
    assert check_reverse_path(proc_of(), ())[0].level is Level.NOT_CHECKED
    assert check_accept_local(proc_of(), ["qtun0"])[0].level is Level.NOT_CHECKED


@pytest.mark.parametrize(("everywhere", "own", "level"), [(0, 0, Level.ERROR), (1, 0, Level.OK), (0, 1, Level.OK)])
def test_a_tunnel_device_must_take_our_own_address_as_source(
    proc_of: Make, everywhere: int, own: int, level: Level
) -> None:
    files = {
        "sys/net/ipv4/conf/all/accept_local": str(everywhere),
        "sys/net/ipv4/conf/qtun0/accept_local": str(own),
    }
    (finding,) = check_accept_local(proc_of(files), ["qtun0"])
    assert finding.level is level
    if level is Level.ERROR:
        assert finding.remedy == "sysctl -w net.ipv4.conf.qtun0.accept_local=1"


def test_no_tunnel_device_is_nothing_to_check(proc_of: Make) -> None:
    assert check_accept_local(proc_of(), ()) == []
