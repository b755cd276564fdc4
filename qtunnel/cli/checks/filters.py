"""Kernel filters that drop a tunnel's packets without a word: reverse path, own source address."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from qtunnel.cli.checks.finding import Finding, error, not_checked, ok, warning
from qtunnel.cli.checks.proc_files import ProcFiles

__all__ = ["check_accept_local", "check_reverse_path"]

_STRICT: Final = 1


def check_reverse_path(proc: ProcFiles, tunnel_devices: Collection[str]) -> list[Finding]:
    """Look for rp_filter=1: what comes in by another interface than the way back is dropped silently.

    The kernel takes the larger of `all` and the interface's own value. tunnel_devices: TUN devices of ours.
    """
    everywhere = proc.sysctl("net.ipv4.conf.all.rp_filter")
    if everywhere is None:
        return [not_checked("reverse-path filter", "net.ipv4.conf.all.rp_filter cannot be read")]
    findings = []
    for interface in proc.interfaces("ipv4"):
        own = proc.sysctl(f"net.ipv4.conf.{interface.replace('.', '/')}.rp_filter") or 0
        if interface == "lo" or max(everywhere, own) != _STRICT:
            continue
        culprit = "all" if everywhere == _STRICT else interface
        key = f"net.ipv4.conf.{culprit}.rp_filter"
        found = f"strict on {interface} ({key}=1): what comes in by another interface than the way back is lost"
        if interface in tunnel_devices:
            findings.append(
                error("reverse-path filter", found, f"sysctl -w net.ipv4.conf.{interface}.rp_filter=2")
            )
        else:
            findings.append(
                warning(
                    "reverse-path filter",
                    found,
                    f"With more than one way out: sysctl -w net.ipv4.conf.{interface}.rp_filter=2  (a firewall "
                    "script or sysctl.d may set it back)",
                )
            )
    return findings or [ok("reverse-path filter", "not strict on any interface")]


def check_accept_local(proc: ProcFiles, tunnel_devices: Collection[str]) -> list[Finding]:
    """On each TUN device of ours the kernel must take ICMP errors that have this host's own address as source."""
    findings = []
    for device in sorted(tunnel_devices):
        key = f"net.ipv4.conf.{device}.accept_local"
        value = proc.sysctl(f"net.ipv4.conf.{device.replace('.', '/')}.accept_local")
        if value is None:
            findings.append(not_checked("own source address", f"{key} cannot be read"))
        elif not (value or proc.sysctl("net.ipv4.conf.all.accept_local")):
            findings.append(
                error(
                    "own source address",
                    f"{key}=0: `fragmentation needed` messages from the tunnel are dropped as martians, and large "
                    "packets vanish",
                    f"sysctl -w {key}=1",
                )
            )
        else:
            findings.append(ok("own source address", f"taken on {device} (accept_local)"))
    return findings
