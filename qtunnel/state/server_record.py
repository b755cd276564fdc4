"""What a server must remember of its first start: names and pools that clients already know (server.json)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from qtunnel.errors import StateError
from qtunnel.state.private_file import read_private, write_private

__all__ = ["ServerRecord", "load_server_record", "save_server_record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRecord:
    """A server as the next start and `qtunnel user` need to know it.

    public_name: what was told with --public-name, if anything. public_host, public_port, fingerprint: what links
    say; no fingerprint with an operator's own certificate. instance: the control socket's name.
    """

    version: int = 1
    server_name: str
    pool4: IPv4Interface | None = None
    pool6: IPv6Interface | None = None
    public_name: str | None = None
    public_host: str
    public_port: int
    fingerprint: str | None = None
    instance: str = "server"


_ADAPTER: Final = TypeAdapter(ServerRecord)
_FILE: Final = "server.json"


def load_server_record(state: Path) -> ServerRecord | None:
    """Return what was saved, None before the first start.

    Raises:
        StateError: the file is damaged or can be written by others.
    """
    path = state / _FILE
    data = read_private(path)
    if data is None:
        return None
    try:
        record = _ADAPTER.validate_json(data, strict=True)
    except ValidationError as error:
        raise StateError(
            f"{path} is damaged ({error.errors()[0]['msg']}). Restore it, or remove it: new pools are chosen"
        ) from error
    if record.version != 1:
        raise StateError(f"{path} has version {record.version}; this qtunnel knows version 1")
    return record


def save_server_record(state: Path, record: ServerRecord) -> None:
    """Keep the record, if it differs from what is kept."""
    if load_server_record(state) != record:
        write_private(state / _FILE, _ADAPTER.dump_json(record, indent=1) + b"\n")
