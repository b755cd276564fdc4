"""The host's side of a tunnel on a real kernel: what is set up, that it works, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import select
import shlex
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

import pytest
import uvloop

from qtunnel.errors import LocalProtocolError, SystemSetupError
from qtunnel.linux.host import HostSetup
from qtunnel.linux.nft import Masquerade
from qtunnel.linux.tun import Tun
from qtunnel.packet_run import flatten
from tests.linux.daemons import wait_until
from tests.linux.footprint import assert_same_footprint, footprint
from tests.linux.namespaces import Namespace, Namespaces
from tests.unit.linux.packets import checksum, ip_packet, udp_datagram

pytestmark = pytest.mark.root

SERVER = ip_address("198.18.99.1")
TABLE, PRIORITY = 51821, 5180
EVERYTHING4, EVERYTHING6 = ip_network("0.0.0.0/0"), ip_network("::/0")


@dataclass
class Home:
    """A host with one link to a router, inside of which the test runs, and a TUN on it."""

    host: Namespace
    router: Namespace
    tun: Tun

    async def open(self, **options: object) -> HostSetup:
        return await HostSetup.open(self.tun.name, **options)  # type: ignore[arg-type]  # keywords as given


@pytest.fixture
def home(lab: Namespaces) -> Iterator[Home]:
    host, router = lab.add("h"), lab.add("r")
    lab.join(host, "eth0", router, "eth0")
    for namespace, number in ((host, 2), (router, 1)):
        namespace.add_address("eth0", f"198.18.1.{number}/24")
        namespace.add_address("eth0", f"2001:db8:1::{number}/64")
    host.run("ip route add default via 198.18.1.1")
    host.run("ip -6 route add default via 2001:db8:1::1")
    with host.entered():
        tun = Tun.open("qtt%d")
        try:
            yield Home(host, router, tun)
        finally:
            tun.close()


async def set_everything_up(setup: HostSetup) -> None:
    await setup.prepare_tun(ipv6=True)
    await setup.set_tun_mtu(1400)
    await setup.add_address(ip_interface("198.18.7.5/32"))
    await setup.add_address(ip_interface("2001:db8:7::5/128"))
    await setup.set_up()
    await setup.set_server_addresses([SERVER])
    await setup.add_route(EVERYTHING4, mtu=1300)
    await setup.add_route(EVERYTHING6)
    await setup.add_route(ip_network("198.18.8.0/24"), table=254)
    await setup.add_table_rules()
    await setup.enable_forwarding()
    await setup.set_masquerade(Masquerade(pools=(ip_network("198.18.7.0/24"),), lan=True, clamp_mss=True))


class TestUndoing:
    async def test_everything_is_undone_with_the_tun_still_there(self, home: Home) -> None:
        before = footprint(home.host)
        setup = await home.open()
        await set_everything_up(setup)
        during = footprint(home.host)
        assert all(during[key] != before[key] for key in before)
        await setup.undo_all()
        assert_same_footprint(home.host, before)

    async def test_everything_is_undone_when_the_tun_went_first(
        self, home: Home, caplog: pytest.LogCaptureFixture
    ) -> None:
        setup = await home.open()
        await set_everything_up(setup)
        home.tun.close()
        await setup.undo_all()
        assert caplog.records == []
        after = footprint(home.host)
        for needle in ("157", "51821", "qtt0", "198.18.7"):
            assert needle not in "".join(after.values())
        assert home.host.sysctl("net/ipv4/ip_forward") == "0"

    async def test_doing_everything_twice_is_the_same_as_once(self, home: Home) -> None:
        before = footprint(home.host)
        setup = await home.open()
        await set_everything_up(setup)
        once = footprint(home.host)
        await set_everything_up(setup)
        assert_same_footprint(home.host, once)
        await setup.undo_all()
        await setup.undo_all()
        assert_same_footprint(home.host, before)

    async def test_a_set_up_that_fails_half_way_is_undone(self, home: Home) -> None:
        before = footprint(home.host)

        async def start() -> None:
            async with await home.open() as setup:
                await setup.prepare_tun(ipv6=True)
                await setup.add_address(ip_interface("198.18.7.5/32"))
                await setup.set_up()
                await setup.enable_forwarding()
                await setup.add_table_rules()
                await setup.add_route(ip_network("198.18.8.0/24"), source=ip_address("203.0.113.1"))

        with pytest.raises(SystemSetupError, match=r"cannot route 198\.18\.8\.0/24 into qtt0 \(Invalid argu"):
            await start()
        assert_same_footprint(home.host, before)

    async def test_what_somebody_else_changed_meanwhile_is_left_alone(self, home: Home) -> None:
        setup = await home.open()
        await setup.set_sysctl("net/ipv4/conf/eth0/rp_filter", "2")
        home.host.sysctl("net/ipv4/conf/eth0/rp_filter", "1")
        await setup.undo_all()
        assert home.host.sysctl("net/ipv4/conf/eth0/rp_filter") == "1"

    async def test_addresses_and_routes_can_be_taken_back_singly(self, home: Home) -> None:
        setup = await home.open()
        address, network = ip_interface("198.18.7.5/32"), ip_network("198.18.8.0/24")
        await setup.set_up()
        await setup.add_address(address)
        await setup.add_route(network)
        await setup.remove_route(network)
        await setup.remove_address(address)
        await setup.remove_address(address)
        assert "198.18.7.5" not in home.host.run("ip address")
        assert "198.18.8" not in home.host.run("ip route show table all")
        await setup.undo_all()

    def test_it_runs_on_uvloop(self, home: Home) -> None:
        before = footprint(home.host)

        async def life() -> None:
            async with await home.open() as setup:
                await set_everything_up(setup)

        uvloop.run(life())
        assert_same_footprint(home.host, before)


class TestKilledRuns:
    CODE = (
        "import asyncio, ipaddress, os, signal\n"
        "from qtunnel.linux.host import HostSetup\n"
        "from qtunnel.linux.nft import Masquerade\n"
        "from qtunnel.linux.tun import Tun\n"
        "async def main():\n"
        "    tun = Tun.open('qtk0')\n"
        "    setup = await HostSetup.open(tun.name)\n"
        "    await setup.set_up()\n"
        "    await setup.set_server_addresses([ipaddress.ip_address('198.18.99.1')])\n"
        "    await setup.add_route(ipaddress.ip_network('0.0.0.0/0'))\n"
        "    await setup.add_table_rules()\n"
        "    await setup.set_masquerade(Masquerade(lan=True))\n"
        "    {end}\n"
        "asyncio.run(main())\n"
    )

    async def test_rules_and_table_of_a_killed_run_are_removed_by_the_next(self, home: Home) -> None:
        before = footprint(home.host)
        home.host.python(self.CODE.format(end="os.kill(os.getpid(), signal.SIGKILL)"), check=False)
        left = footprint(home.host)
        assert "qtunnel_qtk0" in left["nft list ruleset"]
        assert "51821" in left["ip -details rule"]
        assert "51821" in left["ip -6 -details rule"]
        setup = await home.open()
        assert_same_footprint(home.host, before)
        await setup.undo_all()

    FORWARDING = (
        "import asyncio, os, pathlib, signal, sys\n"
        "from qtunnel.linux.host import HostSetup\n"
        "async def main():\n"
        "    setup = await HostSetup.open('lo', table=None, journal=pathlib.Path(sys.argv[1]))\n"
        "    await setup.enable_forwarding()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )

    async def test_forwarding_of_a_killed_run_is_put_back_by_the_next(self, home: Home, tmp_path: Path) -> None:
        home.host.sysctl("net/ipv4/conf/eth0/forwarding", "1")
        before = footprint(home.host)
        journal = tmp_path / "run"
        home.host.python(self.FORWARDING, str(journal), check=False)
        assert home.host.sysctl("net/ipv4/ip_forward") == "1"
        assert home.host.sysctl("net/ipv6/conf/all/forwarding") == "1"
        setup = await home.open(journal=journal)
        assert_same_footprint(home.host, before)
        assert list(journal.iterdir()) == []
        await setup.undo_all()

    async def test_forwarding_is_kept_while_a_living_tunnel_needs_it(self, home: Home, tmp_path: Path) -> None:
        before = footprint(home.host)
        home.host.python(self.FORWARDING, str(tmp_path / "run"), check=False)
        setups = [await home.open(table=None, journal=tmp_path / "run") for _ in range(2)]
        for setup in setups:
            await setup.enable_forwarding()
        await setups[0].undo_all()
        third = await home.open(table=None, journal=tmp_path / "run")
        assert home.host.sysctl("net/ipv4/ip_forward") == home.host.sysctl("net/ipv6/conf/all/forwarding") == "1"
        await third.undo_all()
        assert home.host.sysctl("net/ipv4/ip_forward") == home.host.sysctl("net/ipv6/conf/all/forwarding") == "1"
        await setups[1].undo_all()
        assert_same_footprint(home.host, before)

    async def test_rules_of_a_living_tunnel_are_refused_and_left_alone(self, home: Home) -> None:
        code = self.CODE.format(end="print('up', flush=True); await asyncio.sleep(60)")
        process = home.host.spawn(shlex.join([sys.executable, "-c", code]))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            before = footprint(home.host)
            with pytest.raises(SystemSetupError, match=r"in use by the tunnel on qtk0.*route_table"):
                await home.open()
            with pytest.raises(SystemSetupError, match="in use by the tunnel on qtk0"):
                await home.open(table=77)
            assert_same_footprint(home.host, before)
            second = await home.open(table=77, rule_priority=5190)
            await second.undo_all()
            assert_same_footprint(home.host, before)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)

    async def test_a_server_can_run_beside_a_client_with_the_same_settings(self, home: Home) -> None:
        code = self.CODE.format(end="print('up', flush=True); await asyncio.sleep(60)")
        process = home.host.spawn(shlex.join([sys.executable, "-c", code]))
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            before = footprint(home.host)
            async with await home.open(table=None) as setup:
                with pytest.raises(LocalProtocolError, match="without a routing table"):
                    await setup.add_table_rules()
                with pytest.raises(LocalProtocolError, match="without a routing table"):
                    await setup.add_route(EVERYTHING4)
            assert_same_footprint(home.host, before)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)

    async def test_rules_of_others_at_other_priorities_are_left_alone(self, home: Home) -> None:
        home.host.run("ip rule add priority 5183 lookup 100")
        home.host.run("ip rule add priority 5181 lookup 100")
        home.host.run("nft add table inet qtunnels")
        before = footprint(home.host)
        setup = await home.open()
        await setup.undo_all()
        assert_same_footprint(home.host, before)


class TestRouting:
    async def test_server_and_own_networks_stay_outside_and_the_rest_goes_inside(self, home: Home) -> None:
        async with await home.open() as setup:
            await set_everything_up(setup)
            for destination, interface in (
                (str(SERVER), "eth0"),
                ("198.18.1.77", "eth0"),
                ("203.0.113.9", "qtt0"),
                ("2001:db8:1::77", "eth0"),
                ("2001:db8:ffff::1", "qtt0"),
            ):
                assert f"dev {interface} " in home.host.run(f"ip route get {destination}")
        assert "dev eth0 " in home.host.run("ip route get 203.0.113.9")

    async def test_a_new_server_address_replaces_the_old_one_also_of_the_other_family(self, home: Home) -> None:
        async with await home.open() as setup:
            await set_everything_up(setup)
            await setup.replace_server_rule(ip_address("2001:db8:99::1"))
            assert "dev eth0 " in home.host.run("ip route get 2001:db8:99::1")
            assert "dev qtt0 " in home.host.run(f"ip route get {SERVER}")
            await setup.set_server_addresses([SERVER, ip_address("2001:db8:99::1")])
            assert "dev eth0 " in home.host.run(f"ip route get {SERVER}")
            assert "dev eth0 " in home.host.run("ip route get 2001:db8:99::1")

    async def test_the_mtu_of_a_route_can_be_set_and_changed(self, home: Home) -> None:
        async with await home.open() as setup:
            await set_everything_up(setup)
            assert "mtu 1300" in home.host.run("ip route get 203.0.113.9")
            await setup.add_route(EVERYTHING4, mtu=1250)
            assert "mtu 1250" in home.host.run("ip route get 203.0.113.9")
            await setup.add_route(EVERYTHING4)
            assert "mtu" not in home.host.run("ip route get 203.0.113.9")

    async def test_a_pool_address_brings_the_route_to_its_network_unless_told_otherwise(self, home: Home) -> None:
        async with await home.open() as setup:
            await setup.set_up()
            await setup.add_address(ip_interface("198.18.7.1/24"))
            await setup.add_address(ip_interface("198.18.6.1/24"), prefix_route=False)
            assert "198.18.7.0/24" in home.host.run("ip route")
            assert "198.18.6.0/24" not in home.host.run("ip route")


class TestTun:
    async def test_the_kernel_sends_nothing_of_its_own_into_a_fresh_tun(self, home: Home) -> None:
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=True)
            await setup.add_address(ip_interface("2001:db8:7::5/128"))
            await setup.set_up()
            assert "fe80" not in home.host.run("ip -6 address show dev qtt0")
            assert not select.select([home.tun], [], [], 0.5)[0]
        assert home.host.sysctl("net/ipv6/conf/qtt0/addr_gen_mode") == "0"

    async def test_without_ipv6_there_is_none_on_the_tun(self, home: Home) -> None:
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=False)
            await setup.set_up()
            assert home.host.run("ip -6 address show dev qtt0") == ""
            with pytest.raises(SystemSetupError, match="cannot give qtt0 the address"):
                await setup.add_address(ip_interface("2001:db8:7::5/128"))

    async def test_ipv6_is_had_where_the_host_has_it_off_by_default(self, home: Home) -> None:
        home.tun.close()
        home.host.sysctl("net/ipv6/conf/default/disable_ipv6", "1")
        home.tun = Tun.open("qtt0")
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=True)
            await setup.set_up()
            await setup.add_address(ip_interface("2001:db8:7::5/128"))
            assert "2001:db8:7::5" in home.host.run("ip -6 address show dev qtt0")
        home.tun.close()

    async def test_the_mtu_stays_at_1280_or_more_while_there_is_ipv6(self, home: Home) -> None:
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=True)
            address = ip_interface("2001:db8:7::5/128")
            await setup.add_address(address)
            await setup.set_up()
            await setup.set_tun_mtu(1280)
            with pytest.raises(LocalProtocolError, match="at least 1280"):
                await setup.set_tun_mtu(1279)
            assert "2001:db8:7::5" in home.host.run("ip -6 address show dev qtt0")
            await setup.remove_address(address)
            await setup.set_tun_mtu(1200)
            with pytest.raises(LocalProtocolError, match="below 1280"):
                await setup.add_address(address)
            await setup.set_tun_mtu(1400)
            assert "fe80" not in home.host.run("ip -6 address show dev qtt0")
            assert home.host.sysctl("net/ipv6/conf/qtt0/accept_ra") == "0"
            await setup.add_address(address)
            assert "2001:db8:7::5" in home.host.run("ip -6 address show dev qtt0")

    @pytest.mark.parametrize(
        ("everywhere", "device", "expected"), [(0, 0, "0"), (1, 0, "2"), (0, 1, "2"), (2, 1, "1"), (1, 2, "2")]
    )
    async def test_strict_reverse_path_filtering_becomes_loose_on_the_tun_alone(
        self, home: Home, everywhere: int, device: int, expected: str
    ) -> None:
        home.host.sysctl("net/ipv4/conf/all/rp_filter", str(everywhere))
        home.host.sysctl("net/ipv4/conf/qtt0/rp_filter", str(device))
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=True)
            assert home.host.sysctl("net/ipv4/conf/qtt0/rp_filter") == expected
            assert home.host.sysctl("net/ipv4/conf/all/rp_filter") == str(everywhere)
        assert home.host.sysctl("net/ipv4/conf/qtt0/rp_filter") == str(device)

    @pytest.mark.parametrize("prepared", [True, False], ids=["prepared", "control"])
    async def test_the_kernel_believes_icmp_from_the_tuns_own_address_only_when_prepared(
        self, home: Home, prepared: bool
    ) -> None:
        async with await home.open() as setup:
            if prepared:
                await setup.prepare_tun(ipv6=True)
            await setup.add_address(ip_interface("198.18.7.1/24"))
            await setup.set_up()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.sendto(bytes(1300), ("198.18.7.2", 9))
                assert select.select([home.tun], [], [], 30)[0]
                (packet,) = [each for each in flatten(home.tun.read_burst()) if each[0] >> 4 == 4]
                assert home.tun.write_burst([fragmentation_needed(packet, "198.18.7.1", 1000)]) == 1
            assert ("mtu 1000" in home.host.run("ip route get 198.18.7.2")) is prepared


def fragmentation_needed(packet: bytes, source: str, mtu: int) -> bytes:
    icmp = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + packet[:28]
    icmp = icmp[:2] + struct.pack("!H", checksum(icmp)) + icmp[4:]
    return ip_packet((source, socket.inet_ntoa(packet[12:16])), 1, icmp)


class TestForwarding:
    async def test_per_interface_settings_come_back_as_they_were(self, home: Home) -> None:
        home.host.sysctl("net/ipv4/conf/eth0/forwarding", "1")
        home.host.sysctl("net/ipv6/conf/eth0/forwarding", "1")
        home.host.sysctl("net/ipv4/conf/all/accept_redirects", "0")
        before = footprint(home.host)
        async with await home.open() as setup:
            await setup.enable_forwarding()
            assert home.host.sysctl("net/ipv4/ip_forward") == "1"
            assert home.host.sysctl("net/ipv6/conf/all/forwarding") == "1"
        assert_same_footprint(home.host, before)

    async def test_forwarding_that_was_on_stays_on(self, home: Home) -> None:
        home.host.sysctl("net/ipv4/ip_forward", "1")
        home.host.sysctl("net/ipv6/conf/all/forwarding", "1")
        before = footprint(home.host)
        async with await home.open() as setup:
            await setup.enable_forwarding()
            assert_same_footprint(home.host, before)
        assert_same_footprint(home.host, before)

    async def test_one_family_alone_can_be_switched_on(self, home: Home) -> None:
        async with await home.open() as setup:
            await setup.enable_forwarding(ipv4=False)
            assert home.host.sysctl("net/ipv4/ip_forward") == "0"
            assert home.host.sysctl("net/ipv6/conf/all/forwarding") == "1"

    async def test_the_default_route_a_router_announced_survives(self, home: Home) -> None:
        home.host.run("ip -6 route del default")
        home.host.sysctl("net/ipv6/conf/eth0/accept_ra", "1")
        announce_router(home)
        before = home.host.sysctl("net/ipv6/conf/eth0/accept_ra")
        async with await home.open() as setup:
            await setup.enable_forwarding()
            assert "proto ra" in home.host.run("ip -6 route show default")
            assert home.host.sysctl("net/ipv6/conf/eth0/accept_ra") == "2"
        assert home.host.sysctl("net/ipv6/conf/eth0/accept_ra") == before
        assert "proto ra" in home.host.run("ip -6 route show default")

    def test_control_the_kernel_forgets_that_route_when_just_switched_on(self, home: Home) -> None:
        home.host.run("ip -6 route del default")
        home.host.sysctl("net/ipv6/conf/eth0/accept_ra", "1")
        announce_router(home)
        home.host.sysctl("net/ipv6/conf/all/forwarding", "1")
        assert "proto ra" not in home.host.run("ip -6 route show default")


def announce_router(home: Home) -> None:
    """Send a router advertisement (RFC 4861 §4.2) until the host has its default route."""
    with home.router.entered():
        router = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
        index = socket.if_nametoindex("eth0")
    router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
    router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)

    def is_heard() -> bool:
        message = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0)
        with contextlib.suppress(OSError):  # no link-local address yet
            router.sendto(message, ("ff02::1", 0, 0, index))
        return "proto ra" in home.host.run("ip -6 route show default")

    with contextlib.closing(router):
        wait_until(is_heard, "the default route of an advertisement")


class TestMasquerade:
    @pytest.mark.parametrize(
        ("pool", "inside", "outside", "expected"),
        [
            ("198.18.7.0/24", "198.18.7.9", "198.18.1.1", "198.18.1.2"),
            ("2001:db8:7::/64", "2001:db8:7::9", "2001:db8:1::1", "2001:db8:1::2"),
        ],
        ids=["ipv4", "nat66"],
    )
    async def test_clients_leave_with_the_address_of_the_host(
        self, home: Home, pool: str, inside: str, outside: str, expected: str
    ) -> None:
        network = ip_network(pool)
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=True)
            await setup.add_address(ip_interface(f"{network[1]}/{network.prefixlen}"))
            await setup.set_up()
            await setup.enable_forwarding()
            await setup.set_masquerade(Masquerade(pools=(network,)))
            assert source_seen_by_router(home, inside, outside) == expected
        home.router.run(f"ip route add {pool} via {expected}")
        home.host.sysctl("net/ipv4/ip_forward", "1")
        home.host.sysctl("net/ipv6/conf/all/forwarding", "1")
        home.host.run("ip link set qtt0 up")
        assert source_seen_by_router(home, inside, outside) == inside  # the control: afterwards it is not hidden

    async def test_a_lan_leaves_by_the_tunnel_with_the_address_of_the_tun(self, home: Home) -> None:
        async with await home.open() as setup:
            await setup.prepare_tun(ipv6=True)
            await setup.add_address(ip_interface("198.18.7.5/32"))
            await setup.set_up()
            await setup.add_route(ip_network("203.0.113.0/24"), table=254)
            await setup.enable_forwarding()
            home.router.run("ip route add 203.0.113.0/24 via 198.18.1.2")
            for exceptions, expected in (((), "198.18.7.5"), ((ip_network("198.18.1.0/24"),), "198.18.1.1")):
                await setup.set_masquerade(Masquerade(lan=True, lan_exceptions=exceptions))
                with home.router.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as lan:
                    lan.sendto(b"x", ("203.0.113.9", 9))
                assert select.select([home.tun], [], [], 30)[0]
                packet = next(
                    each for each in flatten(home.tun.read_burst()) if each[0] >> 4 == 4 and each[9] == 17
                )
                assert socket.inet_ntoa(packet[12:16]) == expected

    async def test_missing_nft_says_what_to_install(self, home: Home) -> None:
        before = footprint(home.host)
        async with await home.open(nft="no-such-nft") as setup:
            with pytest.raises(SystemSetupError, match="apt install nftables"):
                await setup.set_masquerade(Masquerade(lan=True))
        assert_same_footprint(home.host, before)


def source_seen_by_router(home: Home, inside: str, outside: str) -> str:
    """Let a client's packet come out of the TUN; return the source with which it reaches the router."""
    is_ipv4 = "." in inside
    with home.router.entered():
        listening = socket.socket(socket.AF_INET if is_ipv4 else socket.AF_INET6, socket.SOCK_DGRAM)
        listening.bind((outside, 4433))
    listening.settimeout(30)
    with contextlib.closing(listening):
        assert home.tun.write_burst([udp_datagram(b"x", (inside, outside), ports=(7, 4433))]) == 1
        source: str = listening.recvfrom(100)[1][0]
        return source


async def test_without_the_capability_each_refusal_says_so(lab: Namespaces) -> None:
    code = (
        "import asyncio, ctypes, ipaddress\n"
        "from qtunnel.errors import SystemSetupError\n"
        "from qtunnel.linux.host import HostSetup\n"
        "async def main():\n"
        "    setup = await HostSetup.open('lo')\n"
        "    libc = ctypes.CDLL(None)\n"
        "    assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0\n"
        "    for act in (\n"
        "        setup.add_address(ipaddress.ip_interface('198.18.7.5/32')),\n"
        "        setup.add_route(ipaddress.ip_network('198.18.8.0/24')),\n"
        "        setup.add_table_rules([4]),\n"
        "        setup.set_tun_mtu(1400),\n"
        "    ):\n"
        "        try:\n"
        "            await act\n"
        "        except SystemSetupError as error:\n"
        "            print(error)\n"
        "    await setup.undo_all()\n"
        "asyncio.run(main())\n"
    )
    lines = lab.add("h").python(code).splitlines()
    assert len(lines) == 4
    assert all("Run as root or with CAP_NET_ADMIN" in line for line in lines)


async def test_an_interface_that_is_not_there_is_named(lab: Namespaces) -> None:
    with lab.add("h").entered(), pytest.raises(SystemSetupError, match="there is no interface qtt7"):
        await HostSetup.open("qtt7")


NOBODY = (
    "import ctypes, os\n"
    "libc = ctypes.CDLL(None)\n"
    "assert libc.prctl(8, 1, 0, 0, 0) == 0\n"  # PR_SET_KEEPCAPS
    "os.setresuid(65534, 65534, 65534)\n"
    "sets = (ctypes.c_uint32 * 6)(*[1 << 12] * 3)\n"  # CAP_NET_ADMIN
    "assert libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), sets) == 0\n"
)


@pytest.mark.parametrize("become", ["", NOBODY], ids=["root", "nobody"])
async def test_net_admin_alone_is_enough_for_everything_and_its_undoing(lab: Namespaces, become: str) -> None:
    """As root after drop_privileges(), and as a service's user with that one capability."""
    host = lab.add("h")
    host.run("ip link add qtt0 type veth peer name qtt1")
    before = footprint(host)
    code = (
        "import asyncio, ipaddress\n"
        "from qtunnel.linux.host import HostSetup\n"
        "from qtunnel.linux.nft import Masquerade\n"
        "from qtunnel.linux.privileges import drop_privileges, effective_capabilities\n"
        f"{become}"
        "drop_privileges({'NET_ADMIN'})\n"
        "assert effective_capabilities() == {'NET_ADMIN'}\n"
        "async def main():\n"
        "    setup = await HostSetup.open('qtt0')\n"
        "    await setup.prepare_tun(ipv6=True)\n"
        "    await setup.set_tun_mtu(1400)\n"
        "    await setup.add_address(ipaddress.ip_interface('198.18.7.1/24'))\n"
        "    await setup.set_up()\n"
        "    await setup.set_server_addresses([ipaddress.ip_address('198.18.99.1')])\n"
        "    await setup.add_route(ipaddress.ip_network('203.0.113.0/24'))\n"
        "    await setup.add_table_rules()\n"
        "    await setup.enable_forwarding()\n"
        "    await setup.set_masquerade(Masquerade(lan=True))\n"
        "    with open('/proc/sys/net/ipv4/ip_forward') as file:\n"
        "        print(file.read().strip(), setup.warnings)\n"
        "    await setup.undo_all()\n"
        "asyncio.run(main())\n"
    )
    assert host.python(code) == "1 []\n"
    assert_same_footprint(host, before)
