"""Whether we may make a TUN device, routes and firewall rules here, and have the tools."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

from qtunnel.cli.checks.finding import Finding, error, not_checked, note, ok, warning
from qtunnel.cli.checks.proc_files import CAP_NET_ADMIN, CAP_NET_BIND_SERVICE, ProcFiles
from qtunnel.errors import SystemSetupError

__all__ = ["check_nft", "check_privileges", "check_tun"]

_COMMAND_TIMEOUT_S: Final = 10
_MASQUERADE: Final = """\
table inet qtunnel_doctor {
    chain postrouting { type nat hook postrouting priority srcnat; oifname "qtunnel-doctor" masquerade; }
}
"""


def check_privileges(proc: ProcFiles) -> list[Finding]:
    """Look at the capabilities of this process."""
    findings = []
    if proc.has_capability(CAP_NET_ADMIN):
        findings.append(ok("privileges", "CAP_NET_ADMIN is there: TUN, routes and rules can be set up"))
    else:
        findings.append(
            note(
                "privileges",
                "no CAP_NET_ADMIN: only --no-tun works, and some checks cannot be made",
                "sudo qtunnel doctor",
            )
        )
    first = proc.sysctl("net.ipv4.ip_unprivileged_port_start")
    if not proc.has_capability(CAP_NET_BIND_SERVICE) and first is not None and first > 443:
        findings.append(
            note("server port", f"ports below {first} need CAP_NET_BIND_SERVICE", "sudo, or serve --port 8443")
        )
    return findings


def check_tun(proc: ProcFiles) -> list[Finding]:
    """Make a TUN device, and remove it."""
    if not proc.has_capability(CAP_NET_ADMIN):
        return [not_checked("TUN device", "making one needs CAP_NET_ADMIN", "sudo qtunnel doctor")]
    from qtunnel.linux.tun import Tun

    try:
        tun = Tun.open("qtdoctor%d")
    except SystemSetupError as failure:
        return [error("TUN device", failure.problem, failure.remedy or "")]
    name = tun.name
    tun.close()
    return [ok("TUN device", f"{name} could be made, and was removed")]


def check_nft(proc: ProcFiles) -> list[Finding]:
    """Try a masquerade rule without installing it, and look for a firewall that drops what is forwarded."""
    if shutil.which("nft") is None:
        return [warning("nft", "is not installed; --masquerade needs it", "apt install nftables")]
    if not proc.has_capability(CAP_NET_ADMIN):
        return [not_checked("nft", "it is installed; trying a rule needs CAP_NET_ADMIN", "sudo qtunnel doctor")]
    problem = _nft("--check", "--file", "-", stdin=_MASQUERADE)
    if problem is None:
        return [warning("nft", "the kernel takes no masquerade rule", "modprobe nft_masq nft_chain_nat")]
    findings = [ok("nft", "a masquerade rule would be taken")]
    chains = _nft("list", "chains") or ""
    if dropping := [
        line.strip() for line in chains.splitlines() if "hook forward" in line and "policy drop" in line
    ]:
        findings.append(
            warning(
                "firewall",
                f"what this host forwards is dropped unless a rule accepts it ({dropping[0]})",
                "On a server: accept iifname and oifname qtun* in that chain; see it with: nft list ruleset",
            )
        )
    return findings


def _nft(*arguments: str, stdin: str = "") -> str | None:
    """Return what nft prints, None when it fails."""
    try:
        done = subprocess.run(
            ["nft", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None
