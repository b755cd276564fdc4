"""How large UDP buffers can be here, whether the kernel cuts and joins datagrams, and what was lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from qtunnel.cli.checks.finding import Finding, not_checked, note, ok, warning
from qtunnel.cli.checks.proc_files import ProcFiles
from qtunnel.config import QuicConfig
from qtunnel.errors import SystemSetupError
from qtunnel.linux.udp import UdpSocket

__all__ = ["check_buffers", "check_lost_datagrams", "check_offload"]


def check_buffers(proc: ProcFiles, wanted: QuicConfig) -> list[Finding]:
    """Ask for the buffers a tunnel asks for, and see what comes. The kernel's limits are per socket."""
    findings = []
    try:
        with _quiet(), _socket(wanted) as udp:
            got = {"receive": udp.receive_buffer, "send": udp.send_buffer}
    except SystemSetupError as problem:
        return [not_checked("socket buffers", str(problem))]
    asked = {"receive": wanted.receive_buffer, "send": wanted.send_buffer}
    for direction, key in (("receive", "net.core.rmem_max"), ("send", "net.core.wmem_max")):
        subject = f"{direction} buffer"
        if got[direction] >= asked[direction]:
            findings.append(ok(subject, f"{got[direction]} bytes, as asked for"))
            continue
        findings.append(
            warning(
                subject,
                f"{got[direction]} bytes instead of {asked[direction]}, since {key} is {proc.sysctl(key)}: "
                "what does not fit is lost",
                f"sysctl -w {key}={asked[direction]}  (to keep it: a line {key}={asked[direction]} in "
                "/etc/sysctl.d/60-qtunnel.conf). With CAP_NET_ADMIN qtunnel needs no sysctl",
            )
        )
    return findings


def check_offload(kernel_release: str) -> list[Finding]:
    """See whether UDP_SEGMENT and UDP_GRO are there. kernel_release: as uname says, for known faults."""
    try:
        with _quiet(), _socket(QuicConfig()) as udp:
            has = {"UDP_SEGMENT (GSO)": udp.gso_available, "UDP_GRO": udp.gro_available}
    except SystemSetupError as problem:
        return [not_checked("UDP offload", str(problem))]
    missing = [name for name, there in has.items() if not there]
    findings = []
    if missing:
        findings.append(
            note(
                "UDP offload",
                f"no {' and no '.join(missing)} in this kernel: correct, but slower",
                "A newer kernel",
            )
        )
    else:
        findings.append(ok("UDP offload", "UDP_SEGMENT and UDP_GRO are there"))
    if _has_gso_fault(kernel_release):
        findings.append(
            warning(
                "UDP offload",
                f"kernel {kernel_release}: 7.0 to 7.1.4 are known to send segments with wrong checksums",
                "A newer kernel, or --no-gso",
            )
        )
    return findings


def check_lost_datagrams(proc: ProcFiles) -> list[Finding]:
    """Look at what this host has lost since it started, by all programs together."""
    counters = proc.udp_counters()
    if not counters:
        return [not_checked("lost datagrams", "the kernel's UDP counters cannot be read")]
    findings = []
    if lost := counters.get("RcvbufErrors", 0):
        findings.append(
            note(
                "lost datagrams",
                f"RcvbufErrors is {lost}: that many found a receive buffer full since this host started",
                "If it grows while a tunnel is slow (nstat -z UdpRcvbufErrors): larger buffers, or a faster CPU",
            )
        )
    if wrong := counters.get("InCsumErrors", 0):
        findings.append(
            note(
                "lost datagrams",
                f"InCsumErrors is {wrong}: that many came with a wrong checksum",
                "If it grows: --no-gso on the sender, or `ethtool -K DEVICE tx-udp-segmentation off` there",
            )
        )
    return findings or [ok("lost datagrams", "none for a full buffer or a wrong checksum since this host started")]


def _has_gso_fault(release: str) -> bool:
    numbers = []
    for part in release.split("-")[0].split(".")[:3]:
        if not part.isdigit():
            return False
        numbers.append(int(part))
    return (7, 0) <= tuple(numbers) <= (7, 1, 4)


@contextmanager
def _socket(wanted: QuicConfig) -> Iterator[UdpSocket]:
    udp = UdpSocket.open(("127.0.0.1", 0), receive_buffer=wanted.receive_buffer, send_buffer=wanted.send_buffer)
    try:
        yield udp
    finally:
        udp.close()


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the socket's own warning out of the log: the finding says it."""
    logger = logging.getLogger("qtunnel.linux")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
