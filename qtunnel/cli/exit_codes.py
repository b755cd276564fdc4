"""What the exit status means, and which error gives which."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from qtunnel import errors

__all__ = ["ExitCode", "exit_code_for", "exit_code_page"]


class ExitCode(IntEnum):
    """Exit statuses; scripts and service managers may rely on them."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    CONFIG = 3
    SYSTEM = 4
    OVERLAP = 5
    UNREACHABLE = 6
    NOT_VERIFIED = 7
    REFUSED = 8
    NOT_RUNNING = 9
    PROTOCOL = 10
    ALREADY_RUNNING = 11
    NO_ENTRY = 12
    STATE = 13
    FINDINGS = 14
    TUN_LOST = 15
    INTERRUPTED = 130

    @property
    def meaning(self) -> str:
        """Return what it means, in a few words."""
        return _MEANINGS[self][0]

    @property
    def remedy(self) -> str:
        """Return what to do about it, in one sentence."""
        return _MEANINGS[self][1]


_MEANINGS: Final[dict[ExitCode, tuple[str, str]]] = {
    ExitCode.OK: ("it worked, or ended as asked", "Nothing."),
    ExitCode.UNEXPECTED: ("an unexpected error: a fault in qtunnel", "Run again with --debug and report it."),
    ExitCode.USAGE: ("the command line cannot be understood", "See `qtunnel COMMAND --help`."),
    ExitCode.CONFIG: ("a setting or a join link cannot be used", "Correct what the message names."),
    ExitCode.SYSTEM: (
        "a privilege, /dev/net/tun or another part of the system is missing",
        "Type what the message says; `qtunnel doctor` shows all of them at once.",
    ),
    ExitCode.OVERLAP: (
        "a network of the tunnel is already in use on this host",
        "Choose other pools on the server (--pool4, --pool6) or other routes on the client (--route).",
    ),
    ExitCode.UNREACHABLE: (
        "no server answered, or it ended the tunnel",
        "Check the server's name, its port (UDP) and the firewalls between.",
    ),
    ExitCode.NOT_VERIFIED: (
        "the server could not be verified; nothing was sent to it",
        "Do not go on before you know why; a server set up anew needs a new join link.",
    ),
    ExitCode.REFUSED: (
        "the server refused the token",
        "Ask for a new join link: `qtunnel user link NAME` on the server.",
    ),
    ExitCode.NOT_RUNNING: ("no running tunnel answers", "Start it, or check its name with `qtunnel status`."),
    ExitCode.PROTOCOL: (
        "the other side broke the protocol or lacks a part of it",
        "Check both versions; for mqvpn use --quirks mqvpn.",
    ),
    ExitCode.ALREADY_RUNNING: ("a tunnel of that name runs already", "End it first, or give another --name."),
    ExitCode.NO_ENTRY: (
        "no user or profile of that name, or there is one already",
        "See `qtunnel user list` or `qtunnel profile list`.",
    ),
    ExitCode.STATE: (
        "a file that qtunnel keeps is damaged, or others can read it",
        "Do what the message says about that file.",
    ),
    ExitCode.FINDINGS: ("`qtunnel doctor` found something that keeps a tunnel from working", "Type what it says."),
    ExitCode.TUN_LOST: (
        "another program deleted the TUN, or took it down",
        "Start the tunnel again; keep network managers away from qtun*.",
    ),
    ExitCode.INTERRUPTED: ("interrupted by Ctrl-C before anything was running", "Nothing."),
}

_BY_ERROR: Final[tuple[tuple[type[Exception], ExitCode], ...]] = (
    (errors.ConfigError, ExitCode.CONFIG),
    (errors.TunLostError, ExitCode.TUN_LOST),
    (errors.SystemSetupError, ExitCode.SYSTEM),
    (errors.NetworkOverlapError, ExitCode.OVERLAP),
    (errors.ConnectionFailedError, ExitCode.UNREACHABLE),
    (errors.ServerNotVerifiedError, ExitCode.NOT_VERIFIED),
    (errors.AuthenticationError, ExitCode.REFUSED),
    (errors.NotRunningError, ExitCode.NOT_RUNNING),
    (errors.PeerProtocolError, ExitCode.PROTOCOL),
    (errors.LocalProtocolError, ExitCode.PROTOCOL),
    (errors.AlreadyRunningError, ExitCode.ALREADY_RUNNING),
    (errors.EntryError, ExitCode.NO_ENTRY),
    (errors.StateError, ExitCode.STATE),
)


def exit_code_for(error: BaseException) -> ExitCode:
    """Return the exit status for an error that ended a command."""
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return ExitCode.UNEXPECTED


def exit_code_page() -> str:
    """Return docs/exit-codes.md, so that the page cannot differ from the program (a test compares them)."""
    rows = [f"| {code.value} | {code.meaning} | {code.remedy} |" for code in ExitCode]
    return "\n".join(
        [
            "# Exit codes",
            "",
            "The exit status of every `qtunnel` command. The numbers do not change between versions.",
            "",
            "| status | meaning | what to do |",
            "|---|---|---|",
            *rows,
            "",
            "A service manager need not try again after 2, 3, 4, 5, 7, 8, 11 and 13: only a person can help. The",
            "units in `packaging/systemd/` say so with `RestartPreventExitStatus=`.",
            "",
        ]
    )
