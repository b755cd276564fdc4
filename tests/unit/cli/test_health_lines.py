"""The lines of `qtunnel status` about the program itself (A62, A64)."""

from __future__ import annotations

from typing import Any

import pytest

from qtunnel.cli.health_lines import LIMIT_WORDS, health_lines
from qtunnel.quic.sending_limit import SendingLimit

HEALTH = {
    "limit": "path",
    "limits": {"path": 0.83, "cpu": 0.1},
    "cpu_share": 0.42,
    "wake_ups": 1234,
    "lateness_p99_ms": 0.256,
    "lateness_max_ms": 3.2,
    "stalls": 2,
    "longest_stall_ms": 120.0,
}


def test_a64_the_limit_is_told_in_words_with_its_share() -> None:
    line = health_lines({"health": HEALTH})["limited by"]
    assert line == "the path: losses, or a full queue on it; in the last 10 s: path 83%, cpu 10%"


def test_every_limit_has_words() -> None:
    assert set(LIMIT_WORDS) == set(map(str, SendingLimit))


def test_the_event_loop_shows_how_late_it_was() -> None:
    assert health_lines({"health": HEALTH})["event loop"] == (
        "wants 42% of a CPU, 99 % of the wake-ups at most 0.3 ms late, one 3.2 ms (last 10 s), "
        "2 stalls in all, the longest 120 ms"
    )


def test_shares_of_the_offloads_are_shown() -> None:
    tun: dict[str, Any] = {"segments_read": 90, "packets_read": 100, "packets_coalesced": 0, "packets_written": 50}
    tun["refused"] = {"offloads": 1}
    socket = {"local": "0.0.0.0:443", "receive_buffer": 4096, "send_buffer": 4096, "gso_share": 0.97, "gro": False}
    lines = health_lines({"tun_offload": tun, "sockets": [socket]})
    assert (
        lines["TUN offload"]
        == "90 packets in them, 90% of the packets read, 0% of those written, refused by the kernel: offloads"
    )
    assert lines["sockets"] == "0.0.0.0:443, buffers 4.1 kB/4.1 kB, 97% sent in batches (GSO), no GRO"


def test_a62_drops_come_with_what_to_type() -> None:
    socket = {"receive_drops": 7, "advice": "sysctl -w net.core.rmem_max=4194304"}
    line = health_lines({"socket": socket})["sockets"]
    assert (
        "7 datagrams lost because the receive buffer was full, type: sysctl -w net.core.rmem_max=4194304" in line
    )


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"health": None, "tun_offload": 3, "sockets": "none"},
        {"health": {"limit": 3, "limits": [], "cpu_share": "much"}, "socket": {"gso_share": "half", "gso_off": 3}},
        {"health": {"limit": "gremlins"}, "sockets": [None]},
    ],
)
def test_an_answer_of_another_version_is_no_error(answer: dict[str, Any]) -> None:
    assert set(health_lines(answer)) == {"limited by", "event loop", "TUN offload", "sockets"}
