"""What limits a running tunnel (A64)."""

from __future__ import annotations

from typing import Any

import pytest

from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.running_tunnels import check_tunnel


def found(before: dict[str, Any], after: dict[str, Any], cpu_share: float | None = 0.1) -> list[str]:
    findings = check_tunnel("home", before, after, cpu_share=cpu_share)
    return [f"{finding.level}: {finding.found}" for finding in findings]


def test_a_tunnel_at_ease_has_one_good_finding() -> None:
    answer = {"drops": {"queue-full": 9, "too-big": 1}, "socket": {"receive_drops": 7}}
    assert found(answer, answer) == ["ok: nothing limits it now; 10% of a CPU"]


@pytest.mark.parametrize(
    ("before", "after", "cpu_share", "words"),
    [
        ({}, {}, 0.97, "the CPU is the limit"),
        ({"socket": {"receive_drops": 1}}, {"socket": {"receive_drops": 4}}, 0.1, "3 datagrams lost"),
        ({"sockets": [{"receive_drops": 1}]}, {"sockets": [{"receive_drops": 2}]}, 0.1, "1 datagrams lost"),
        ({}, {"drops": {"queue-full": 5}}, 0.1, "the path (congestion window or pacing) is the limit (5 packets"),
        ({}, {"sessions": [{"drops": {"udp-blocked": 2}}]}, 0.1, "the interface is the limit (2 packets"),
        ({}, {"drops": {"udp-too-big": 1}}, 0.1, "did not fit the path"),
        ({}, {"warnings": ["accept_local is 0"]}, 0.1, "accept_local is 0"),
    ],
)
def test_what_limits_it_is_named(
    before: dict[str, Any], after: dict[str, Any], cpu_share: float, words: str
) -> None:
    (line,) = found(before, after, cpu_share)
    assert line.startswith("warning: ")
    assert words in line


def test_an_unknown_cpu_share_is_not_checked() -> None:
    findings = check_tunnel("home", {}, {}, cpu_share=None)
    assert [finding.level for finding in findings] == [Level.NOT_CHECKED]


def test_a64_what_the_tunnel_itself_finds_is_told_with_what_to_do() -> None:
    (line,) = found({}, {"health": {"limit": "window"}})
    assert line == "note: limited by the congestion window, while the path is not full"
    assert found({}, {"health": {"limit": "nothing"}}) == ["ok: nothing limits it now; 10% of a CPU"]
