"""How a join link leaves the server: on a terminal it is shown, anywhere else it goes into a file of mode 0600.

Standard output may be a log or a journal, and a token must not get there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from qtunnel.cli.output import is_terminal, say, styled
from qtunnel.state.join_link import JoinLink
from qtunnel.state.private_file import ensure_private_directory, write_private
from qtunnel.state.server_record import ServerRecord

__all__ = ["forget_link", "hand_out_link"]


def hand_out_link(state: Path, record: ServerRecord, user: str, token: str, *, print_anyway: bool = False) -> None:
    """Show the user's join link, or write it to STATE/join/USER.link and say where it is.

    print_anyway: print the link alone, whatever standard output is; someone asked for it.
    """
    link = JoinLink(
        host=record.public_host,
        port=record.public_port,
        server_name=record.server_name,
        fingerprint=record.fingerprint,
        user=user,
        token=token,
    )
    forget_link(state, user)
    if print_anyway:
        say(link.text())
        return
    if is_terminal():
        say(f"Join link for {user}. It is a password: hand it over as one. It is not shown again.")
        styled(link.text(), "bold")
        say("On the client, paste it into: sudo qtunnel join")
    else:
        path = _path(state, user)
        ensure_private_directory(path.parent)
        write_private(path, link.text().encode() + b"\n")
        say(f"join link for {user}: {path}")
    if record.public_name is None and record.fingerprint is not None:
        say(
            f"note: it says {record.public_host}, this host's own address. If clients reach it by another: "
            "qtunnel serve --public-name HOST[:PORT], then qtunnel user link " + user
        )


def forget_link(state: Path, user: str) -> None:
    """Remove the file with the user's former link, if there is one: its token is or will be worthless."""
    with contextlib.suppress(OSError):
        _path(state, user).unlink()


def _path(state: Path, user: str) -> Path:
    return state / "join" / f"{user}.link"
