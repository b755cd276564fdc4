"""DF, judged by the IP header as it was on the wire."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qtunnel.cli.checks import dont_fragment
from qtunnel.cli.checks.dont_fragment import Capture, check_dont_fragment, parse_capture
from qtunnel.cli.checks.finding import Level
from qtunnel.cli.checks.proc_files import CAP_NET_RAW, ProcFiles
from qtunnel.errors import SystemSetupError

Make = Callable[..., ProcFiles]
RAW = 1 << CAP_NET_RAW
UDP = struct.pack("!HHHH", 1000, 2000, 8, 0)


def ipv4(flags: int, protocol: int = 17) -> bytes:
    return struct.pack("!BBHHHBBH8x", 0x45, 0, 28, 1, flags, 64, protocol, 0) + UDP


def ipv6(next_header: int, extension: bytes = b"") -> bytes:
    return struct.pack("!IHBB32x", 6 << 28, len(extension) + 8, next_header, 64) + extension + UDP


@pytest.mark.parametrize(
    ("packet", "capture"),
    [
        (ipv4(0x4000), Capture(may_fragment=False, size=28)),
        (ipv4(0x0000), Capture(may_fragment=True, size=28)),
        (ipv4(0x2000), Capture(may_fragment=True, size=28)),
        (ipv4(0x2001), None),  # a later fragment has no ports
        (ipv4(0x4000, protocol=6), None),
        (ipv6(17), Capture(may_fragment=False, size=48)),
        (ipv6(44, bytes([17, 0, 0, 1, 0, 0, 0, 1])), Capture(may_fragment=True, size=56)),
        (ipv6(6), None),
        (b"", None),
        (b"\x45", None),
    ],
)
def test_what_the_header_says(packet: bytes, capture: Capture | None) -> None:
    assert parse_capture(packet, 2000) == capture


def test_other_peoples_packets_do_not_count() -> None:
    assert parse_capture(ipv4(0x4000), 2001) is None
    assert parse_capture(ipv6(17), 2001) is None


@given(st.binary(max_size=80), st.sampled_from([0x45, 0x4F, 0x60]), st.integers(1, 65535))
def test_any_packet_is_judged_or_passed_over(rest: bytes, first: int, port: int) -> None:
    parse_capture(bytes([first]) + rest, port)


def test_without_the_privilege_it_says_so(proc_of: Make) -> None:
    (finding,) = check_dont_fragment(proc_of())
    assert (finding.level, finding.remedy) == (Level.NOT_CHECKED, "sudo qtunnel doctor")


@pytest.mark.parametrize(
    ("packets", "level"),
    [
        ([Capture(may_fragment=False, size=1228)], Level.OK),
        ([Capture(may_fragment=False, size=1228), Capture(may_fragment=True, size=1228)], Level.ERROR),
        ([], Level.NOT_CHECKED),
        (None, Level.NOT_CHECKED),
    ],
)
def test_the_verdict(
    proc_of: Make, monkeypatch: pytest.MonkeyPatch, packets: list[Capture] | None, level: Level
) -> None:
    monkeypatch.setattr(dont_fragment, "_send_and_capture", lambda *_: packets)
    findings = check_dont_fragment(proc_of(capabilities=RAW))
    assert [finding.level for finding in findings] == [level] * 4


@pytest.mark.parametrize("error", [OSError(97, "no IPv6"), SystemSetupError("no socket")])
def test_what_cannot_be_sent_is_not_checked(
    proc_of: Make, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(dont_fragment, "_send_and_capture", fail)
    assert {finding.level for finding in check_dont_fragment(proc_of(capabilities=RAW))} == {Level.NOT_CHECKED}
