"""qtunnel.connect and qtunnel.serve over real sockets on the loopback interface, without root."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from dataclasses import replace
from ipaddress import IPv6Address

import pytest

import qtunnel
from qtunnel.aio.attempt import STAGGER
from qtunnel.ip.echo import answer_echo, build_echo_request6, parse_echo_reply
from tests.library.conftest import PATIENCE, POOL6, Site


async def answer_pings(server: qtunnel.TunnelServer) -> None:
    while packets := await server.receive():
        server.send([reply for packet in packets if (reply := answer_echo(packet, POOL6.ip)) is not None])


def address6(tunnel: qtunnel.TunnelClient) -> IPv6Address:
    return next(each.ip for each in tunnel.addresses if isinstance(each.ip, IPv6Address))


async def ping(tunnel: qtunnel.TunnelClient, sequence: int, length: int = 56) -> bool:
    tunnel.send([build_echo_request6(address6(tunnel), POOL6.ip, 9, sequence, data_length=length)])
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while packets := await tunnel.receive():
                for packet in packets:
                    reply = parse_echo_reply(packet)
                    if reply is not None and reply.sequence == sequence:
                        return True
    return False


async def test_packets_go_both_ways_without_root(site: Site) -> None:
    async with site.serve() as server:
        answering = asyncio.create_task(answer_pings(server))
        async with qtunnel.connect(site.client(server.port)) as tunnel:
            assert [each.version for each in tunnel.addresses] == [4, 6]
            assert await ping(tunnel, 1)
            assert await ping(tunnel, 2, length=tunnel.inner_mtu - 48)
    await answering


async def test_an_oversize_packet_is_answered_with_packet_too_big(site: Site) -> None:
    async with site.serve() as server, qtunnel.connect(site.client(server.port)) as tunnel:
        mtu = tunnel.inner_mtu
        tunnel.send([build_echo_request6(address6(tunnel), POOL6.ip, 9, 1, data_length=mtu - 47)])
        (answer,) = await tunnel.receive()
        assert answer[40] == 2
        assert int.from_bytes(answer[44:48], "big") == mtu
        assert tunnel.status()["drops"] == {"too-big": 1}


@pytest.mark.parametrize(
    "settings",
    [
        {"target": "x y"},
        {"target": "192.0.2.1/33"},
        {"ipproto": "256"},
        {"uri_template": "http://a/{target}/{ipproto}"},
        {"uri_template": "https://h/{bad"},
    ],
    ids=str,
)
async def test_a_request_that_cannot_be_made_is_told_before_anything_is_sent(
    site: Site, settings: dict[str, str]
) -> None:
    config = replace(site.client(9), **settings)  # type: ignore[arg-type]  # by name; no server is there
    with pytest.raises(qtunnel.ConfigError, match=next(iter(settings))):
        async with asyncio.timeout(PATIENCE), qtunnel.connect(config):
            pass


async def test_a_wrong_token_is_an_authentication_error_at_once(site: Site) -> None:
    async with site.serve() as server:
        with pytest.raises(qtunnel.AuthenticationError, match="token"):
            async with asyncio.timeout(PATIENCE), qtunnel.connect(site.client(server.port, "mallory")):
                pass
        assert server.status()["sessions"] == []


async def test_another_certificate_gets_no_token(site: Site) -> None:
    async with site.serve() as server:
        config = site.client(server.port, fingerprint="00" * 32)
        with pytest.raises(qtunnel.ServerNotVerifiedError, match="could not be verified"):
            async with asyncio.timeout(PATIENCE), qtunnel.connect(config):
                pass
        assert server.status()["sessions"] == []


async def test_the_cas_decide_without_a_fingerprint(site: Site) -> None:
    async with site.serve() as server:
        config = site.client(server.port, fingerprint=None)
        with pytest.raises(qtunnel.ServerNotVerifiedError):
            async with asyncio.timeout(PATIENCE), qtunnel.connect(config):
                pass


async def test_nobody_listening_is_an_error_only_when_reconnect_is_off(site: Site, unused_udp_port: int) -> None:
    config = site.client(unused_udp_port, reconnect=False, handshake_timeout=0.3)
    with pytest.raises(qtunnel.ConnectionFailedError):
        async with asyncio.timeout(PATIENCE), qtunnel.connect(config):
            pass


async def test_a_client_started_before_its_server_connects_once_it_is_there(
    site: Site, unused_udp_port: int
) -> None:
    config = site.client(unused_udp_port, handshake_timeout=0.3)
    async with qtunnel.connect(config, wait=False) as tunnel:
        async with asyncio.timeout(PATIENCE):
            async for event in tunnel.events():
                if isinstance(event, qtunnel.Connecting) and event.attempt > 1:
                    break
            assert tunnel.status()["state"] != "connected"
            async with site.serve(unused_udp_port):
                await tunnel.wait_connected()


async def test_a_restarted_server_gets_its_client_back_with_the_same_address(site: Site) -> None:
    async with site.serve() as server:
        port = server.port
        tunnel = qtunnel.TunnelClient(site.client(port), use_tun=False)
        await tunnel.start()
        await tunnel.wait_connected()
        before = tunnel.addresses
        events = tunnel.events()
    async with site.serve(port):
        async with asyncio.timeout(PATIENCE):
            async for event in events:
                if isinstance(event, qtunnel.Connected):
                    break
        assert tunnel.addresses == before
    await tunnel.close()


async def test_a_removed_user_loses_the_tunnel_at_once_and_the_other_one_does_not(site: Site) -> None:
    async with site.serve() as server, qtunnel.connect(site.client(server.port, "bob")) as bob:
        async with qtunnel.connect(site.client(server.port, "alice")) as alice:
            await server.set_users([user for user in site.users() if user.name == "bob"])
            with pytest.raises(qtunnel.AuthenticationError):
                async with asyncio.timeout(PATIENCE):
                    await alice.wait_closed()
        assert bob.status()["state"] == "connected"
        assert [session["user"] for session in server.status()["sessions"]] == ["bob"]


async def test_a_new_token_ends_the_session_of_the_old_one(site: Site) -> None:
    async with site.serve() as server, qtunnel.connect(site.client(server.port)) as alice:
        changed = [replace(user, token_sha256=qtunnel.token_digest("another-token")) for user in site.users()]
        await server.set_users(changed)
        with pytest.raises(qtunnel.AuthenticationError):
            async with asyncio.timeout(PATIENCE):
                await alice.wait_closed()


async def test_a47_a_second_client_of_a_user_replaces_the_first_and_keeps_the_address(site: Site) -> None:
    async with site.serve() as server, qtunnel.connect(site.client(server.port)) as first:
        addresses = first.addresses
        async with qtunnel.connect(site.client(server.port)) as second:
            assert second.addresses == addresses
            with pytest.raises(qtunnel.ConnectionFailedError, match="a user of its own"):
                async with asyncio.timeout(PATIENCE):
                    await first.wait_closed()
            assert len(server.status()["sessions"]) == 1


async def test_clients_reach_each_other_only_when_allowed(site: Site) -> None:
    for allowed in (False, True):
        async with site.serve(client_to_client=allowed) as server:
            alice_config, bob_config = site.client(server.port, "alice"), site.client(server.port, "bob")
            async with qtunnel.connect(alice_config) as alice, qtunnel.connect(bob_config) as bob:
                packet = build_echo_request6(address6(alice), address6(bob), 9, 1, data_length=10)
                alice.send([packet])
                reader = bob if allowed else alice
                async with asyncio.timeout(PATIENCE):
                    (got,) = await reader.receive()
                if allowed:
                    assert got[7] == packet[7] - 1  # qtunnel routed it, so it took a hop
                else:
                    assert got[40] == 1  # ICMPv6 destination unreachable
                    assert got[41] == 1  # administratively prohibited


async def test_events_tell_the_story_in_order(site: Site) -> None:
    async with site.serve() as server:
        tunnel = qtunnel.TunnelClient(site.client(server.port), use_tun=False)
        events = tunnel.events()
        await tunnel.start()
        await tunnel.wait_connected()
        await tunnel.close()
        kinds = [type(event).__name__ async for event in events]
    assert kinds[:3] == ["Connecting", "Connected", "RoutesChanged"]


async def test_two_addresses_of_a_name_send_the_token_once(site: Site) -> None:
    config = replace(site.server_config, listen=("127.0.0.1", "::1"))
    async with (
        qtunnel.serve(config, identity=site.identity, users=site.users()) as server,
        qtunnel.connect(site.client(server.port, server="localhost")) as tunnel,
    ):
        await asyncio.sleep(2 * STAGGER)  # the other address, were it still to be tried, has been by now
        assert tunnel.status()["state"] == "connected"
        assert len(server.status()["sessions"]) == 1


async def test_what_both_families_have_to_say_is_said_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object, address: tuple[object, ...]) -> None:
        code = errno.EADDRINUSE if in_use else errno.EACCES
        raise OSError(code, os.strerror(code), address)

    monkeypatch.setattr(socket.socket, "bind", refuse)
    in_use = False
    with pytest.raises(qtunnel.SystemSetupError) as caught:
        async with site.serve(port=443, listen=("127.0.0.1", "::1")):
            pass
    assert str(caught.value).count("may not bind UDP port 443") == 1
    in_use = True
    with pytest.raises(qtunnel.SystemSetupError) as caught:
        async with site.serve(port=443, listen=("127.0.0.1", "::1")):
            pass
    assert str(caught.value) == (
        "UDP port 443 is taken on 127.0.0.1; UDP port 443 is taken on ::1. See who has it: ss -ulpn 'sport = :443'"
    )
    assert caught.value.remedy == "See who has it: ss -ulpn 'sport = :443'"
