"""Any bytes as configuration, state, link or control request: a value or our own error, and nothing else.

A token that is in the input is in no message about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from qtunnel.aio.control import MAX_REQUEST, ControlServer, control_request
from qtunnel.cli.load import ConnectOptions, ServeOptions, Settings, build, parse_toml, read_toml_file
from qtunnel.config import ClientConfig, HostConfig, QuicConfig, ServerConfig
from qtunnel.errors import ConfigError, QTunnelError
from qtunnel.state.identity import certificate_covers, certificate_names, load_or_create_identity
from qtunnel.state.join_link import parse_join_link
from qtunnel.state.leases import LeaseStore
from qtunnel.state.profiles import ProfileStore
from qtunnel.state.server_record import load_server_record
from qtunnel.state.users import UserStore

TOKEN = "tHe-t0ken-Of-tHis-t3st"
NOW = datetime(2026, 12, 1, tzinfo=UTC)
KINDS = [(ServeOptions, ServerConfig), (ConnectOptions, ClientConfig)]

_keys = st.sampled_from(
    sorted(
        {
            name
            for kind in (ServeOptions, ConnectOptions, ServerConfig, ClientConfig, QuicConfig, HostConfig)
            for name in kind.__dataclass_fields__
        }
    )
) | st.text(max_size=8)
_scalars: st.SearchStrategy[Any] = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.dates()
    | st.sampled_from(["default", "none", "10.0.0.0/8", "10.7.0.1/24", "fd07::1/64", "::", "443", "a.net", TOKEN])
)
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3), max_leaves=5
)
_tables = st.dictionaries(_keys, _values, max_size=5)
_toml_like = st.text(alphabet="abq=[]{}\".'\n\r#-_:,0123456789etTzZ+ \\u", max_size=60)


@given(st.text() | _toml_like)
def test_any_text_is_toml_or_our_error(text: str) -> None:
    try:
        values = parse_toml(text, "f.toml")
    except ConfigError:
        return
    assert isinstance(values, dict)


@pytest.mark.parametrize("kinds", KINDS)
@given(first=_tables, second=_tables)
def test_any_values_are_a_configuration_or_our_error(
    kinds: tuple[type, ...], first: dict[str, Any], second: dict[str, Any]
) -> None:
    settings = Settings()
    settings.add(first, "first.toml")
    settings.add(second, "command line", {"port": "--port"})
    with contextlib.suppress(ConfigError):
        built = build(settings, kinds)
        assert [type(instance) for instance in built] == list(kinds)


def message_of(settings: Settings, kinds: tuple[type, ...]) -> str:
    try:
        build(settings, kinds)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "key", ["token", "tokne", "Token", "quic.token", "server.token", "peer_quirks.token", "host.token"]
)
@given(wrong=_tables, form=st.sampled_from(["{}", " {}", "{} {}", "{}\n", "{}\x00"]), is_list=st.booleans())
def test_a_token_is_in_no_message_wherever_it_stands(
    key: str, wrong: dict[str, Any], form: str, is_list: bool
) -> None:
    assume(TOKEN not in repr(wrong))  # where a network belongs, it would be shown as what was found there
    text = form.format(TOKEN, TOKEN)
    table, _, name = key.rpartition(".")
    value: Any = [text] if is_list else text
    settings = Settings()
    settings.add(wrong, "f.toml")
    settings.add({table: {name: value}} if table else {name: value}, "f.toml")
    for kinds in KINDS:
        assert TOKEN not in message_of(settings, kinds)


@given(st.binary(max_size=200))
def test_any_file_is_read_or_our_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "f.toml"
        path.write_bytes(data)
        with contextlib.suppress(ConfigError):
            read_toml_file(path)


@given(st.binary(max_size=300) | st.text().map(lambda text: f"qtunnel://{text}".encode("utf-8", "replace")))
def test_any_bytes_are_a_link_or_our_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_join_link(data.decode("ascii", "replace"))


_json_like = _values.map(lambda value: json.dumps(value, default=str).encode())


@given(st.binary(max_size=200) | _json_like)
def test_any_bytes_in_the_state_directory_are_read_or_our_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory)
        (state / "identity").mkdir(mode=0o700)
        for name in (
            "users.json", "leases.json", "server.json", "secret", "p.toml",
            "identity/certificate.pem", "identity/private_key.pem",
        ):  # fmt: skip
            (state / name).write_bytes(data)
            (state / name).chmod(0o600)
        reads: tuple[Callable[[], object], ...] = (
            lambda: UserStore(state, now=lambda: NOW).users(),
            lambda: UserStore(state, now=lambda: NOW).add("alice"),
            lambda: LeaseStore(state),
            lambda: load_server_record(state),
            lambda: ProfileStore(state).read("p"),
            lambda: load_or_create_identity(state, server_name="a.invalid", now=NOW),
            lambda: certificate_names(data),
            lambda: certificate_covers(data, "a.net"),
        )
        for read in reads:
            with contextlib.suppress(QTunnelError):
                read()


async def _status() -> dict[str, Any]:
    return {"role": "client"}


@given(st.lists(st.binary(max_size=100) | _json_like, min_size=1, max_size=4), st.booleans())
def test_any_bytes_to_the_control_socket_get_error_lines_or_a_hang_up(parts: list[bytes], ends: bool) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="qt") as directory:
            path = Path(directory) / "x" / "control.sock"
            async with ControlServer(path, {"status": _status}):
                reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
                try:
                    writer.write(b"\n".join(parts) + (b"\n" if ends else b""))
                    writer.write_eof()
                    for line in (await reader.read()).splitlines():
                        reply = json.loads(line)
                        assert reply["ok"] is True or reply["error"]
                except ConnectionError:
                    pass  # hung up on
                finally:
                    writer.transport.abort()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()
                # and the next caller is served
                assert await control_request(path, "status") == {"role": "client"}

    asyncio.run(main())


@given(st.integers(0, 4 * MAX_REQUEST))
@example(MAX_REQUEST - 22)
@example(MAX_REQUEST - 21)
@example(MAX_REQUEST - 20)
def test_a_line_of_any_length_costs_no_more_than_its_bound(length: int) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="qt") as directory:
            path = Path(directory) / "x" / "control.sock"
            async with ControlServer(path, {"status": _status}):
                reader, writer = await asyncio.open_unix_connection(str(path), limit=1 << 20)
                try:
                    writer.write(b" " * length + b'{"command": "status"}\n')
                    writer.write_eof()
                    reply = json.loads(await reader.readline() or b'{"ok": false}')
                    assert reply["ok"] is (length + 21 <= MAX_REQUEST)  # the line's end does not count
                except ConnectionError:
                    assert length > MAX_REQUEST - 21
                finally:
                    writer.transport.abort()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()

    asyncio.run(main())


@given(st.binary(max_size=200).map(lambda data: data.replace(b"\n", b"")) | _json_like)
def test_any_answer_of_a_control_socket_is_a_result_or_our_error(reply: bytes) -> None:
    async def on_caller(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(reply + b"\n")
        await writer.drain()
        writer.close()

    async def main() -> None:
        with tempfile.TemporaryDirectory(prefix="qt") as directory:
            path = Path(directory) / "control.sock"
            async with await asyncio.start_unix_server(on_caller, str(path)):
                with contextlib.suppress(QTunnelError):
                    assert isinstance(await control_request(path, "status"), dict)
                await asyncio.sleep(0)

    asyncio.run(main())
