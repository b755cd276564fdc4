"""nftables: one table of our own per TUN, made and removed as a whole. No rule of anyone else is touched.

The nft command is called, as pyroute2 knows few of the expressions; it takes about 20 ms.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Final

from qtunnel.errors import SystemSetupError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Masquerade", "Nft", "is_our_table", "table_name", "table_text"]

IPNetwork = IPv4Network | IPv6Network

_PREFIX: Final = "qtunnel_"
_TIMEOUT: Final = 10.0
_MORE_FOLDERS: Final = ("/usr/sbin", "/sbin", "/usr/local/sbin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Masquerade:
    """Whose addresses are hidden, and where.

    pools: sources that leave by any interface but the TUN take that interface's address (a server's clients going
    to the internet; NAT66 for an IPv6 pool). lan: everything that leaves by the TUN takes the TUN's address (a LAN
    behind a client), but for sources in lan_exceptions, which the server knows how to reach. clamp_mss: TCP
    connections over the TUN are told the path's size, for hosts that do not hear ICMP.
    """

    pools: tuple[IPNetwork, ...] = ()
    lan: bool = False
    lan_exceptions: tuple[IPNetwork, ...] = ()
    clamp_mss: bool = False


def table_name(tun: str) -> str:
    """Return the name of the table for a TUN: letters, digits and underscores, whatever the TUN is called."""
    return _PREFIX + "".join(char if char.isascii() and char.isalnum() else f"_{ord(char):02x}" for char in tun)


def is_our_table(name: str) -> bool:
    """Return whether a table was made by qtunnel, for whichever TUN."""
    return name.startswith(_PREFIX)


def table_text(tun: str, masquerade: Masquerade) -> str:
    """Return the input for nft that makes the table, in place of one with the same name, in one transaction."""
    name = table_name(tun)
    lines = [f"add table inet {name}", f"delete table inet {name}", f"table inet {name} {{"]
    lines += ["\tchain postrouting {", "\t\ttype nat hook postrouting priority srcnat; policy accept;"]
    # An address of the pool that goes on to another client, or to the server itself, is not hidden.
    lines += [
        f'\t\toifname != "{tun}" {_family(pool)} saddr {pool} {_family(pool)} daddr != {pool} counter masquerade'
        for pool in masquerade.pools
    ]
    if masquerade.lan:
        lines += [
            f'\t\toifname "{tun}" {_family(network)} saddr {network} counter accept'
            for network in masquerade.lan_exceptions
        ]
        lines.append(f'\t\toifname "{tun}" counter masquerade')
    lines.append("\t}")
    if masquerade.clamp_mss:
        lines += ["\tchain forward {", "\t\ttype filter hook forward priority mangle; policy accept;"]
        lines += [
            f'\t\t{direction} "{tun}" tcp flags & (syn|rst) == syn tcp option maxseg size set rt mtu counter'
            for direction in ("iifname", "oifname")
        ]
        lines.append("\t}")
    lines.append("}")
    return "\n".join(lines) + "\n"


def _family(network: IPNetwork) -> str:
    return "ip6" if network.version == 6 else "ip"


class Nft:
    """Calls the nft command. command: its name or path; None looks for it, also where only root does."""

    def __init__(self, command: str | None = None) -> None:
        folders = os.environ.get("PATH", "").split(os.pathsep) + list(_MORE_FOLDERS)
        self._command = shutil.which(command or "nft", path=os.pathsep.join(folders))

    @property
    def is_available(self) -> bool:
        """Whether there is an nft command."""
        return self._command is not None

    def make_table(self, tun: str, masquerade: Masquerade) -> None:
        """Make, or make anew, the table for a TUN. Raises: SystemSetupError."""
        self._run(table_text(tun, masquerade))

    def remove_table(self, name: str) -> None:
        """Remove a table; one that is not there is no error. Raises: SystemSetupError."""
        self._run(f"add table inet {name}\ndelete table inet {name}\n")

    def our_tables(self) -> Collection[str]:
        """Return the names of all tables made by qtunnel. Raises: SystemSetupError."""
        lines = self._run("list tables inet\n").splitlines()  # each "table inet NAME"
        names = [line.split()[2] for line in lines if len(line.split()) == 3]
        return [name for name in names if is_our_table(name)]

    def _run(self, text: str) -> str:
        if self._command is None:
            raise SystemSetupError("masquerading needs the nft command", remedy="Type: apt install nftables")
        try:
            done = subprocess.run(
                [self._command, "-f", "-"],
                input=text,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT,
                check=False,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise SystemSetupError(f"cannot run {self._command} ({error})") from error
        if done.returncode:
            reason = done.stderr.strip().splitlines()
            raise SystemSetupError(
                f"nft refused our table ({reason[0] if reason else f'exit code {done.returncode}'})",
                remedy="Type, to see whether nftables works here: nft list ruleset",
            )
        return done.stdout
