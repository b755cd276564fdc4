"""docs/configuration.md, made of the tables of flags, so that the page cannot differ from the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from qtunnel.cli.flag_tables import CONNECT_FLAGS, SERVE_FLAGS
from qtunnel.cli.flags import Flag

__all__ = ["configuration_page"]

_KINDS: Final[dict[object, str]] = {int: "number", float: "number", bool: "true or false", str: "text"}

_INTRODUCTION: Final = """\
# Configuration

A TOML file can say everything the flags can, and nothing has to be said at all. `qtunnel serve` reads
`/etc/qtunnel/server.toml` if it is there, or the file of `--config` or `QTUNNEL_CONFIG`. `qtunnel connect`
reads the profile that `qtunnel join` made, and over it the file of `--config`. Flags count more than files. A key
that does not exist, or a value that cannot be used, is an error; all of them are reported at once.

```toml
# /etc/qtunnel/server.toml
public_name = "vpn.example.net"
advertise = ["192.168.7.0/24"]   # or ["default"] for everything
masquerade = true

[quic]
path_mtu = 1500

[host]
tun_name = "vpn0"
```

Keys with a dot stand in the table before the dot: `quic.path_mtu` is `path_mtu` under `[quic]`. What is a list in
the file is a flag that can be repeated. Environment: `QTUNNEL_STATE_DIR`, `QTUNNEL_PROFILE_DIR`,
`QTUNNEL_RUNTIME_DIR` (control sockets), `QTUNNEL_CONFIG`, `QTUNNEL_DEBUG`.
"""

_TOKEN: Final = """
Besides these a profile has `token`, which no flag can say: command lines are readable by everyone on a host. A
file with a token must have mode 0600.
"""


def configuration_page() -> str:
    """Return the page."""
    server, client = _table(SERVE_FLAGS), _table(CONNECT_FLAGS)
    return f"{_INTRODUCTION}\n## Server\n\n{server}\n## Client\n\n{client}{_TOKEN}"


def _table(flags: Sequence[Flag]) -> str:
    rows = [f"| `{flag.key}` | `{flag.flag}` | {_kind(flag)} | {_text(flag.help)} |\n" for flag in flags]
    return "".join(["| key | flag | value | meaning |\n|---|---|---|---|\n", *rows])


def _kind(flag: Flag) -> str:
    if isinstance(flag.kind, click.Choice):
        return " or ".join(f"`{choice}`" for choice in flag.kind.choices)
    text = _KINDS[flag.kind]
    return f"list of {text}" if flag.is_list else text


def _text(help_text: str) -> str:
    return help_text.replace("|", "\\|")
