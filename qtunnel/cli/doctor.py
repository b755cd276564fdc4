"""`qtunnel doctor`: look at everything a tunnel depends on, and say what to type."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from qtunnel.cli.checks.dont_fragment import check_dont_fragment
from qtunnel.cli.checks.filters import check_accept_local, check_reverse_path
from qtunnel.cli.checks.finding import Finding, Level, not_checked
from qtunnel.cli.checks.forwarding import check_forwarding
from qtunnel.cli.checks.overlap import check_pools, check_profiles
from qtunnel.cli.checks.privileges import check_nft, check_privileges, check_tun
from qtunnel.cli.checks.proc_files import ProcFiles
from qtunnel.cli.checks.running_tunnels import check_tunnel
from qtunnel.cli.checks.sockets import check_buffers, check_lost_datagrams, check_offload
from qtunnel.cli.checks.software import check_clock, check_python, check_versions
from qtunnel.cli.command import Command, Run
from qtunnel.cli.exit_codes import ExitCode
from qtunnel.cli.load import parse_toml
from qtunnel.cli.output import is_terminal, say, styled
from qtunnel.config import QuicConfig
from qtunnel.errors import QTunnelError
from qtunnel.linux.host_networks import HostNetwork, host_networks, router_advertised_interfaces
from qtunnel.state.paths import (
    control_socket,
    profile_directory,
    running_instances,
    runtime_directory,
    state_directory,
)
from qtunnel.state.profiles import ProfileStore
from qtunnel.state.server_record import load_server_record

__all__ = ["Tunnels", "diagnose", "doctor"]

_STYLES: Final = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARNING: "yellow",
    Level.ERROR: "bold red",
    Level.NOT_CHECKED: "dim",
}
_WATCH_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Tunnels:
    """Two answers of each running tunnel, about a second apart, and its share of one CPU between them."""

    before: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    after: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cpu_shares: Mapping[str, float | None] = field(default_factory=dict)

    def devices(self) -> frozenset[str]:
        """Return the names of their TUN devices."""
        return frozenset(str(answer["tun"]) for answer in self.after.values() if answer.get("tun"))


@click.command(
    cls=Command,
    short_help="Look at all a tunnel depends on here.",
    epilog="\b\nExamples:\n  sudo qtunnel doctor\n  sudo qtunnel doctor --json",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--state-dir", metavar="DIR", help="The server's; default QTUNNEL_STATE_DIR or /var/lib/qtunnel.")
@click.pass_context
def doctor(context: click.Context, as_json: bool, state_dir: str | None) -> None:
    """Look at all that a tunnel depends on here; each finding says what to type.

    Nothing is changed: a TUN device is made and removed, datagrams are sent on the loopback interface, and running
    tunnels are watched for a second. Without root it says what it could not see.
    """
    proc = ProcFiles()
    findings = diagnose(proc, _watch_tunnels(proc), state_directory(state_dir, os.environ))
    if as_json:
        say(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        _show(findings)
    if any(finding.level is Level.ERROR for finding in findings):
        context.ensure_object(Run).exit_code = ExitCode.FINDINGS


def diagnose(proc: ProcFiles, tunnels: Tunnels, state: Path) -> list[Finding]:
    """Make all checks; one that fails is a finding too."""
    networks = _try_networks()
    devices = tunnels.devices()
    checks: tuple[tuple[str, Callable[[], list[Finding]]], ...] = (
        ("Python", check_python),
        ("libraries", check_versions),
        ("clock", lambda: check_clock(datetime.now(UTC))),
        ("privileges", lambda: check_privileges(proc)),
        ("TUN device", lambda: check_tun(proc)),
        ("nft", lambda: check_nft(proc)),
        ("socket buffers", lambda: check_buffers(proc, QuicConfig())),
        ("lost datagrams", lambda: check_lost_datagrams(proc)),
        ("UDP offload", lambda: check_offload(os.uname().release)),
        ("DF on the wire", lambda: check_dont_fragment(proc)),
        ("reverse-path filter", lambda: check_reverse_path(proc, devices)),
        ("own source address", lambda: check_accept_local(proc, devices)),
        ("forwarding", lambda: check_forwarding(proc, router_advertised_interfaces())),
        ("overlap", lambda: _check_pools(state, networks, devices)),
        ("overlap", lambda: _check_profiles(networks, devices)),
    )
    findings = [finding for subject, check in checks for finding in _made(subject, check)]
    for name, answer in tunnels.after.items():
        share = tunnels.cpu_shares.get(name)
        findings += check_tunnel(name, tunnels.before.get(name, answer), answer, cpu_share=share)
    return findings


def _made(subject: str, check: Callable[[], list[Finding]]) -> list[Finding]:
    try:
        return check()
    except (QTunnelError, OSError) as problem:
        return [not_checked(subject, str(problem))]


def _show(findings: Iterable[Finding]) -> None:
    width = max(len(level.value) for level in Level)
    for finding in findings:
        styled(f"{finding.level.value.ljust(width)}  {finding.subject}: {finding.found}", _STYLES[finding.level])
        if finding.remedy:
            say(f"{' ' * width}  -> {finding.remedy}")
    if is_terminal():
        say()


def _try_networks() -> list[HostNetwork]:
    try:
        return host_networks()
    except (OSError, QTunnelError):
        return []


def _check_pools(state: Path, networks: Sequence[HostNetwork], devices: frozenset[str]) -> list[Finding]:
    if not state.exists():
        return []
    record = load_server_record(state)
    return [] if record is None else check_pools(record, networks, devices)


def _check_profiles(networks: Sequence[HostNetwork], devices: frozenset[str]) -> list[Finding]:
    store = ProfileStore(profile_directory(os.environ))
    routes: dict[str, list[str]] = {}
    findings = []
    for name in store.names():
        try:
            values = parse_toml(store.read(name), name)
        except QTunnelError as problem:
            findings.append(Finding(f"profile {name}", Level.ERROR, str(problem), "Correct or remove it"))
            continue
        listed = values.get("routes")
        routes[name] = [str(item) for item in listed] if isinstance(listed, list) else []
    return findings + check_profiles(routes, networks, devices)


def _watch_tunnels(proc: ProcFiles) -> Tunnels:
    """Ask every running tunnel twice. Tunnels that cannot be asked are left out: `qtunnel status` says why."""
    runtime = runtime_directory(os.environ)
    names = running_instances(runtime)
    before = _ask_all(runtime, names)
    if not before:
        return Tunnels()
    start, used = time.monotonic(), {name: _cpu_seconds(proc, answer) for name, answer in before.items()}
    time.sleep(_WATCH_S)
    after = _ask_all(runtime, list(before))
    elapsed = time.monotonic() - start
    shares: dict[str, float | None] = {}
    for name, answer in after.items():
        now, then = _cpu_seconds(proc, answer), used[name]
        shares[name] = None if now is None or then is None else (now - then) / elapsed
    return Tunnels(before, after, shares)


def _ask_all(runtime: Path, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    from qtunnel.aio.control import control_request

    answers = {}
    for name in names:
        with suppress(QTunnelError):
            answers[name] = asyncio.run(control_request(control_socket(runtime, name), "status", timeout_s=2.0))
    return answers


def _cpu_seconds(proc: ProcFiles, answer: Mapping[str, Any]) -> float | None:
    """Return the CPU time of the process that answered (proc(5): utime and stime are fields 14 and 15)."""
    pid = answer.get("pid")
    text = proc.text(f"{pid}/stat") if isinstance(pid, int) else None
    fields = (text or "").rpartition(")")[2].split()
    if len(fields) < 13:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
