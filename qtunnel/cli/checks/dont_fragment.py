"""Does what a tunnel sends really carry DF? Sent on the loopback interface and read back from the wire."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from qtunnel.burst import Address, SendResult, Transmit
from qtunnel.cli.checks.finding import Finding, error, not_checked, ok
from qtunnel.cli.checks.proc_files import CAP_NET_RAW, ProcFiles
from qtunnel.errors import SystemSetupError
from qtunnel.linux.udp import UdpSocket

__all__ = ["Capture", "check_dont_fragment"]

_SUBJECT: Final = "DF on the wire"
_ETH_P_ALL: Final = 0x0003
_UDP: Final = 17
_FRAGMENT_HEADER: Final = 44
_WAIT_S: Final = 1.0
_PAYLOAD: Final = 1200
_LOOPBACK: Final = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}


@dataclass(frozen=True, slots=True)
class Capture:
    """One IP packet read from the wire. may_fragment: it lacks DF (IPv4), or is a fragment (IPv6)."""

    may_fragment: bool
    size: int


def check_dont_fragment(proc: ProcFiles) -> list[Finding]:
    """Send one datagram, and a segmented batch, on each family, and look at the packets."""
    if not proc.has_capability(CAP_NET_RAW):
        return [not_checked(_SUBJECT, "reading packets needs CAP_NET_RAW", "sudo qtunnel doctor")]
    findings = []
    for family, name in ((socket.AF_INET, "IPv4"), (socket.AF_INET6, "IPv6")):
        for segments in (1, 3):
            how = f"{name}, {'one datagram' if segments == 1 else 'a segmented batch'}"
            try:
                packets = _send_and_capture(family, segments)
            except (OSError, SystemSetupError) as problem:
                findings.append(not_checked(_SUBJECT, f"{how}: {problem}"))
                continue
            findings.append(_judge(how, packets))
    return findings


def _judge(how: str, packets: list[Capture] | None) -> Finding:
    if packets is None:
        return not_checked(_SUBJECT, f"{how}: this kernel cannot send it")
    if not packets:
        return not_checked(_SUBJECT, f"{how}: the packet was not seen on lo")
    if any(packet.may_fragment for packet in packets):
        return error(
            _SUBJECT,
            f"{how}: sent without DF, so routers may fragment it and no path size can be found",
            "Report it with the kernel's version: uname -r",
        )
    return ok(_SUBJECT, f"{how}: set")


def _send_and_capture(family: socket.AddressFamily, segments: int) -> list[Capture] | None:
    """Return our packets as they were on lo, None when a batch cannot be segmented here."""
    host = _LOOPBACK[family]
    with ExitStack() as stack:
        receiver = stack.enter_context(socket.socket(family, socket.SOCK_DGRAM))
        receiver.bind((host, 0))
        wire = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_ALL)))
        wire.bind(("lo", _ETH_P_ALL))
        udp = UdpSocket.open((host, 0))
        stack.callback(udp.close)
        if segments > 1 and not udp.gso_available:
            return None
        remote: Address = receiver.getsockname()
        data = bytes(_PAYLOAD * segments)
        sent = udp.send(Transmit(data, remote, segment_size=_PAYLOAD if segments > 1 else None))
        if sent is not SendResult.SENT:
            raise SystemSetupError(f"sending to {host} on lo gave: {sent.value}")
        return _read_packets(wire, port=int(remote[1]))


def _read_packets(wire: socket.socket, port: int) -> list[Capture]:
    packets: list[Capture] = []
    deadline = time.monotonic() + _WAIT_S
    while not packets and (left := deadline - time.monotonic()) > 0:
        wire.settimeout(left)
        try:
            packet = wire.recv(65535)
        except TimeoutError:
            break
        if (capture := parse_capture(packet, port)) is not None:
            packets.append(capture)
    return packets


def parse_capture(packet: bytes, port: int) -> Capture | None:
    """Return what the IP header says, None for a packet that is not UDP to that port."""
    if len(packet) >= 28 and packet[0] >> 4 == 4:
        header = (packet[0] & 0x0F) * 4
        flags = struct.unpack_from("!H", packet, 6)[0]
        if packet[9] != _UDP or flags & 0x1FFF or struct.unpack_from("!H", packet, header + 2)[0] != port:
            return None
        return Capture(may_fragment=not flags & 0x4000, size=len(packet))
    if len(packet) >= 48 and packet[0] >> 4 == 6:
        is_fragment = packet[6] == _FRAGMENT_HEADER
        offset = 48 if is_fragment else 40
        protocol = packet[40] if is_fragment else packet[6]
        if protocol != _UDP or len(packet) < offset + 8 or struct.unpack_from("!H", packet, offset + 2)[0] != port:
            return None
        return Capture(may_fragment=is_fragment, size=len(packet))
    return None
