"""`qtunnel serve`: what the first start makes, what the library is asked, and what is never shown."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qtunnel.aio.control import control_request
from qtunnel.cli import serve
from qtunnel.config import token_digest
from qtunnel.errors import LocalProtocolError, NetworkOverlapError, SystemSetupError
from qtunnel.state.identity import certificate_fingerprint
from qtunnel.state.join_link import parse_join_link
from qtunnel.state.paths import control_socket
from qtunnel.state.private_file import FileLock
from qtunnel.state.users import UserStore

Runner = Callable[..., Any]


def token_of(link_file: Path) -> str:
    return parse_join_link(link_file.read_text()).token


def test_the_first_start_makes_all_it_needs_and_hands_out_a_link(run: Runner, world: Any, api: Any) -> None:
    outcome = run("serve", "--public-name", "vpn.example.net")
    assert outcome.code == 0
    assert "serving on 0.0.0.0:443" in outcome.out
    link = parse_join_link((world.state / "join" / "user1.link").read_text())
    asked = api.calls[-1]
    assert link.server_name == api.config.server_name
    assert link.fingerprint == certificate_fingerprint(asked["identity"].certificate_pem)
    assert (link.host, link.port, link.user) == ("vpn.example.net", 443, "user1")
    ((user,),) = api.tunnel.users
    assert (user.name, user.token_sha256) == ("user1", token_digest(link.token))
    assert asked["tun"] is True
    assert dict(asked["leases"]) == {}


def test_everything_it_makes_is_for_its_owner_alone(run: Runner, world: Any, api: Any) -> None:
    run("serve")
    assert stat.S_IMODE(world.state.stat().st_mode) == 0o700
    made = list(world.state.rglob("*"))
    assert len(made) >= 8
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} <= {0o600, 0o700}


def test_the_second_start_uses_what_is_there_and_makes_no_user(run: Runner, world: Any, api: Any) -> None:
    run("serve")
    first = api.calls[-1]
    outcome = run("serve")
    second = api.calls[-1]
    assert "join link" not in outcome.out
    assert second["identity"] == first["identity"]
    assert second["config"].pool4 == first["config"].pool4
    assert [user.name for user in second["users"]] == ["user1"]


def test_a_start_that_fails_makes_no_user_so_that_no_link_is_lost(run: Runner, world: Any, api: Any) -> None:
    api.refuses_with = SystemSetupError("no /dev/net/tun", remedy="Type: modprobe tun")
    outcome = run("serve")
    assert outcome.code == 4
    assert outcome.err == "qtunnel: no /dev/net/tun. Type: modprobe tun\n"
    assert not (world.state / "join").exists()
    api.refuses_with = None
    assert "join link for user1" in run("serve").out


def test_nothing_is_made_when_a_setting_is_wrong(run: Runner, world: Any, api: Any) -> None:
    assert run("serve", "--port", "70000").code == 3
    any_port = run("serve", "--port", "0")
    assert any_port.code == 3
    assert "port: 0 is any free port, which no join link could name" in any_port.err
    assert run("serve", "--first-user", "a b").code == 3
    assert run("serve", "--name", "../x").code == 3
    assert not world.state.exists()
    assert api.calls == []


def test_file_and_flags_say_the_same_and_flags_count_more(
    run: Runner, world: Any, api: Any, tmp_path: Path
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("port = 1111\nmasquerade = true\nuse_tun = false\n[quic]\npath_mtu = 1400\n")
    run("serve", "--config", str(file), "--port", "2222", "--advertise", "default", "--no-gso")
    config = api.config
    assert (config.port, config.masquerade, config.quic.path_mtu, config.quic.gso) == (2222, True, 1400, False)
    assert [str(network) for network in config.advertise] == ["0.0.0.0/0", "::/0"]
    assert api.calls[-1]["tun"] is False


def test_cures_are_switched_off_only_when_a_flag_says_so_too(
    run: Runner, world: Any, api: Any, tmp_path: Path
) -> None:
    file = tmp_path / "server.toml"
    file.write_text('[lab]\nrcvbuf = "default"\n')
    refused = run("serve", "--config", str(file))
    assert refused.code == 3
    assert "server.toml: the table [lab] switches cures off" in refused.err
    assert "--lab" in refused.err
    assert not world.state.exists()
    taken = run("serve", "--config", str(file), "--lab")
    assert taken.code == 0
    assert api.config.lab.receive_buffer(4096) is None
    assert "cures are switched off: rcvbuf=default" in taken.out
    file.write_text('[lab]\nrcvbuf = "small"\n')
    wrong = run("serve", "--config", str(file), "--lab")
    assert wrong.code == 3
    assert "lab.rcvbuf: found 'small'; allowed: one of configured, default" in wrong.err


def test_the_switch_for_experiments_is_in_no_help(run: Runner) -> None:
    for command in ("serve", "connect"):
        assert "lab" not in run(command, "--help").out.replace("available", "")


def test_the_environment_can_name_the_file(
    run: Runner, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.toml"
    file.write_text("port = 1111\n")
    monkeypatch.setenv("QTUNNEL_CONFIG", str(file))
    run("serve")
    assert api.config.port == 1111


def test_the_usual_file_is_read_if_it_is_there(
    run: Runner, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("QTUNNEL_CONFIG")
    monkeypatch.setattr(serve, "DEFAULT_SERVER_CONFIG", tmp_path / "server.toml")
    assert run("serve").code == 0
    (tmp_path / "server.toml").write_text("port = 1111\n")
    run("serve")
    assert api.config.port == 1111


def test_a_state_directory_others_may_enter_is_status_13(run: Runner, world: Any, api: Any) -> None:
    world.state.mkdir()
    world.state.chmod(0o755)
    outcome = run("serve")
    assert outcome.code == 13
    assert "chmod 700" in outcome.err


def test_a_pool_in_use_is_status_5(run: Runner, api: Any) -> None:
    api.refuses_with = NetworkOverlapError("10.77.1.0/24 is in use on eth0")
    assert run("serve").code == 5


def test_a_second_server_on_the_same_state_is_status_11(run: Runner, world: Any, api: Any) -> None:
    run("serve")
    with FileLock(world.state / "server.lock"):
        refused = run("serve")
    assert refused.code == 11
    assert f"keeps its state in {world.state} runs already. See it: qtunnel status" in refused.err


@pytest.mark.parametrize("flag", ["--no-tun", "--keep-privileges", "--drop-privileges"])
def test_privileges_go_once_the_host_is_set_up_unless_kept(run: Runner, api: Any, flag: str) -> None:
    run("serve", flag)
    assert api.privileges_kept == ([("NET_ADMIN",)] if flag == "--drop-privileges" else [])


def test_a_signal_is_a_clean_end(run: Runner, api: Any, world: Any) -> None:
    async def wait() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.get_running_loop().create_future()

    api.tunnel.while_up = wait
    outcome = run("serve")
    assert outcome.code == 0
    assert outcome.out.endswith("ended\n")
    assert list(world.runtime.iterdir()) == []


def test_a_running_server_answers_and_takes_new_users(run: Runner, api: Any, world: Any) -> None:
    answers: dict[str, Any] = {}
    api.tunnel.answer = {"role": "server", "warnings": ["a warning"]}

    async def ask() -> None:
        path = control_socket(world.runtime, "server")
        answers["status"] = await control_request(path, "status")
        token = UserStore(world.state, now=lambda: serve.datetime.now(serve.UTC)).add("bob")
        answers["reload"] = await control_request(path, "reload-users")
        answers["hash"] = token_digest(token)
        (world.state / "users.json").write_text("{")
        with pytest.raises(LocalProtocolError, match="damaged"):
            await control_request(path, "reload-users")

    api.tunnel.while_up = ask
    outcome = run("serve")
    assert outcome.code == 0, outcome.err
    assert "warning: a warning" in outcome.out
    assert answers["status"] == {"name": "server", "pid": os.getpid(), "role": "server", "warnings": ["a warning"]}
    assert answers["reload"] == {"users": 2}
    assert api.tunnel.users[-1][1].token_sha256 == answers["hash"]


def test_the_service_manager_hears_of_start_and_end(
    run: Runner, api: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(world.runtime / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(world.runtime / "notify"))
        run("serve")
        assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]


def test_the_token_is_in_no_output_no_log_and_no_file_but_the_link(
    run: Runner, world: Any, api: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "log"
    with caplog.at_level(logging.DEBUG):
        outcome = run("serve", "--log-level", "debug", "--log-file", str(log))
    token = token_of(world.state / "join" / "user1.link")
    assert token not in outcome.out + outcome.err + caplog.text + log.read_text()
    assert token not in repr(api.calls) + repr(api.tunnel.users)
    holders = [path for path in world.state.rglob("*") if path.is_file() and token.encode() in path.read_bytes()]
    assert holders == [world.state / "join" / "user1.link"]


def test_the_operators_certificate_makes_links_without_a_fingerprint(
    run: Runner, world: Any, api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("serve", "--state-dir", str(tmp_path / "other"), "--server-name", "vpn.example.net")
    identity = tmp_path / "other" / "identity"
    outcome = run(
        "serve",
        "--certificate",
        str(identity / "certificate.pem"),
        "--private-key",
        str(identity / "private_key.pem"),
    )
    assert outcome.code == 0, outcome.err
    link = parse_join_link((world.state / "join" / "user1.link").read_text())
    assert (link.host, link.server_name, link.fingerprint) == ("vpn.example.net", "vpn.example.net", None)
    assert "note:" not in outcome.out


def test_the_record_is_what_user_commands_need(run: Runner, world: Any, api: Any) -> None:
    run("serve", "--public-name", "vpn.example.net:4433", "--name", "other")
    record = json.loads((world.state / "server.json").read_text())
    assert (record["public_host"], record["public_port"], record["instance"]) == ("vpn.example.net", 4433, "other")
