"""`qtunnel connect`: from profile, file and flags to the library, and back to an exit status."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qtunnel import errors
from qtunnel.aio.control import ControlServer, control_request
from qtunnel.config import RouteMode
from qtunnel.state.join_link import JoinLink
from qtunnel.state.paths import control_socket
from qtunnel.state.profiles import ProfileStore
from qtunnel.tunnel.events import Connecting

Runner = Callable[..., Any]

TOKEN = "a-token-that-is-never-shown"
LINK = JoinLink(host="vpn.example.net", server_name="a.invalid", fingerprint="0" * 64, user="a", token=TOKEN)


@pytest.fixture
def home(world: Any) -> Path:
    return ProfileStore(world.profiles).save("home", LINK)


@pytest.mark.usefixtures("home")
def test_the_only_profile_needs_nothing_else(run: Runner, api: Any) -> None:
    api.tunnel.to_happen = [Connecting(time=0.0, remote="192.0.2.1:443", attempt=1)]
    outcome = run("connect")
    assert outcome.code == 0
    assert outcome.out == "connecting to 192.0.2.1:443\n"
    config = api.config
    assert (config.server, config.server_name, config.token) == ("vpn.example.net", "a.invalid", TOKEN)
    assert config.reconnect is True
    assert api.calls[-1]["tun"] is True
    assert api.calls[-1]["wait"] is False


def test_cures_are_switched_off_only_when_a_flag_says_so_too(run: Runner, home: Path, api: Any) -> None:
    home.write_text(home.read_text() + '\n[lab]\nrcvbuf = "default"\n')
    refused = run("connect")
    assert refused.code == 3
    assert f"{home}: the table [lab] switches cures off" in refused.err
    assert api.calls == []
    taken = run("connect", "--lab")
    assert taken.code == 0
    assert api.config.lab.receive_buffer(4096) is None
    assert "cures are switched off: rcvbuf=default" in taken.out


def test_no_profile_and_several_are_status_12(run: Runner, world: Any, api: Any) -> None:
    outcome = run("connect")
    assert outcome.code == 12
    assert "qtunnel join" in outcome.err
    for name in ("home", "work"):
        ProfileStore(world.profiles).save(name, LINK)
    outcome = run("connect")
    assert outcome.code == 12
    assert "home, work" in outcome.err
    assert run("connect", "work").code == 0
    assert run("connect", "nonsense").code == 12


@pytest.mark.usefixtures("home")
def test_flags_count_more_than_file_and_profile(run: Runner, api: Any, tmp_path: Path) -> None:
    file = tmp_path / "more.toml"
    file.write_text('port = 1111\nroutes = ["10.1.0.0/16"]\nroute_table = 7\n[host]\ntun_name = "vpn0"\n')
    outcome = run(
        "connect", "home", "--config", str(file), "--port", "2222", "--table", "8", "--path-mtu", "1400",
        "--advertise", "192.168.7.0/24", "--masquerade", "--once", "--no-tun",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    config = api.config
    assert (config.port, config.host.tun_name, config.route_table) == (2222, "vpn0", 8)
    assert (config.quic.path_mtu, config.masquerade, config.reconnect) == (1400, True, False)
    assert [str(network) for network in config.routes + config.advertise] == ["10.1.0.0/16", "192.168.7.0/24"]
    assert api.calls[-1]["tun"] is False


@pytest.mark.usefixtures("home")
def test_routes_can_be_everything_or_only_what_is_listed(run: Runner, api: Any) -> None:
    run("connect", "--route", "default")
    assert [str(network) for network in api.config.routes] == ["0.0.0.0/0", "::/0"]
    assert api.config.route_mode is RouteMode.ADVERTISED
    run("connect", "--route", "none", "--route", "10.1.0.0/16")
    assert [str(network) for network in api.config.routes] == ["10.1.0.0/16"]
    assert api.config.route_mode is RouteMode.NONE


def test_a_whole_file_needs_no_profile(run: Runner, api: Any, tmp_path: Path) -> None:
    file = tmp_path / "office.toml"
    file.write_text(f'server = "a.net"\nserver_name = "a.net"\ntoken = "{TOKEN}"\n')
    outcome = run("connect", "--config", str(file))
    assert outcome.code == 13
    assert "chmod 600" in outcome.err
    file.chmod(0o600)
    assert run("connect", "--config", str(file)).code == 0
    assert api.config.server == "a.net"


@pytest.mark.usefixtures("home")
def test_a_bad_setting_in_a_profile_is_shown_with_its_file(run: Runner, world: Any, api: Any) -> None:
    with (world.profiles / "home.toml").open("a") as file:
        file.write("colour = 5\n[quic]\npath_mtu = 100\n")
    outcome = run("connect", "--keep-alive", "99")
    assert outcome.code == 3
    assert f"{world.profiles}/home.toml: there is no setting 'colour'" in outcome.err
    assert "quic.path_mtu: 100 is outside" in outcome.err
    assert "--keep-alive: 99.0 must be" in outcome.err
    assert TOKEN not in outcome.err


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ConnectionFailedError("no answer"), 6),
        (errors.ServerNotVerifiedError("another certificate"), 7),
        (errors.AuthenticationError("the token was refused"), 8),
        (errors.SystemSetupError("no TUN"), 4),
        (errors.NetworkOverlapError("10.0.0.0/8 is in use"), 5),
        (errors.PeerProtocolError("bad capsule", error_code=0x10E), 10),
    ],
)
@pytest.mark.parametrize("is_at_start", [True, False])
def test_how_a_tunnel_ends_is_the_exit_status(
    run: Runner, api: Any, world: Any, error: Exception, code: int, is_at_start: bool
) -> None:
    if is_at_start:
        api.refuses_with = error
    else:
        api.tunnel.ends_with = error
    outcome = run("connect")
    assert outcome.code == code
    assert outcome.err.startswith(f"qtunnel: {error}")
    assert list(world.runtime.iterdir()) == []


@pytest.mark.usefixtures("home")
def test_a_signal_is_a_clean_end(run: Runner, api: Any) -> None:
    async def wait() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.get_running_loop().create_future()

    api.tunnel.while_up = wait
    outcome = run("connect")
    assert (outcome.code, outcome.out) == (0, "ended\n")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(("arguments", "name"), [([], "home"), (["--name", "other"], "other")])
def test_a_running_client_answers_under_its_name(
    run: Runner, api: Any, world: Any, arguments: list[str], name: str
) -> None:
    answers: list[dict[str, Any]] = []
    api.tunnel.answer = {"role": "client", "state": "connected", "warnings": ["a warning"]}

    async def ask() -> None:
        answers.append(await control_request(control_socket(world.runtime, name), "status"))

    api.tunnel.while_up = ask
    outcome = run("connect", *arguments)
    assert "warning: a warning" in outcome.out
    assert answers[0]["name"] == name
    assert answers[0]["pid"] == os.getpid()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("flag", ["--no-tun", "--keep-privileges", "--drop-privileges"])
def test_privileges_go_once_the_host_is_set_up_unless_kept(run: Runner, api: Any, flag: str) -> None:
    run("connect", flag)
    assert api.privileges_kept == ([("NET_ADMIN",)] if flag == "--drop-privileges" else [])


@pytest.mark.usefixtures("home")
def test_a_profile_that_is_up_already_is_status_11_and_the_host_is_left_alone(
    run: Runner, api: Any, world: Any
) -> None:
    codes: list[int] = []

    async def main() -> None:
        async with ControlServer(control_socket(world.runtime, "home"), {}):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "qtunnel", "connect", stderr=asyncio.subprocess.PIPE
            )
            _, err = await process.communicate()
            codes.append(process.returncode or 0)
            assert b"runs already" in err

    asyncio.run(main())
    assert codes == [11]


@pytest.mark.usefixtures("home")
def test_the_token_is_in_no_output_log_or_process_list(
    run: Runner, api: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    seen: list[bytes] = []

    def read_what_ps_shows() -> bytes:
        return Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes()

    async def look() -> None:
        seen.append(read_what_ps_shows())

    api.tunnel.while_up = look
    with caplog.at_level(logging.DEBUG):
        outcome = run("connect", "--log-level", "debug", "--log-file", str(log), "--debug")
    assert seen
    assert TOKEN.encode() not in seen[0]
    assert TOKEN not in outcome.out + outcome.err + caplog.text + log.read_text()
    assert TOKEN not in repr(api.config) + str(api.config)
