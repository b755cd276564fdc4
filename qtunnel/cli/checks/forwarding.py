"""Whether this host forwards, and what that does to its own IPv6 default route."""

from __future__ import annotations

from collections.abc import Sequence

from qtunnel.cli.checks.finding import Finding, not_checked, note, ok, warning
from qtunnel.cli.checks.proc_files import ProcFiles

__all__ = ["check_forwarding"]


def check_forwarding(proc: ProcFiles, router_advertised: Sequence[str]) -> list[Finding]:
    """Look at forwarding. router_advertised: interfaces whose IPv6 default route a router announced."""
    four = proc.sysctl("net.ipv4.ip_forward")
    six = proc.sysctl("net.ipv6.conf.all.forwarding")
    if four is None:
        return [not_checked("forwarding", "net.ipv4.ip_forward cannot be read")]
    on = [name for name, value in (("IPv4", four), ("IPv6", six)) if value]
    findings = [
        ok("forwarding", f"on for {' and '.join(on)}")
        if on
        else note(
            "forwarding",
            "off",
            "A client needs none. A server with --advertise, --masquerade or --forward switches it on itself",
        )
    ]
    for interface in router_advertised:
        key = f"net.ipv6.conf.{interface}.accept_ra"
        if proc.sysctl(f"net.ipv6.conf.{interface.replace('.', '/')}.accept_ra") == 1:
            findings.append(
                warning(
                    "IPv6 default route",
                    f"it came from a router by {interface}, and {key}=1: once IPv6 forwarding is on the kernel "
                    "ignores routers, and this host loses the route",
                    f"On a server that forwards IPv6: sysctl -w {key}=2",
                )
            )
    return findings
