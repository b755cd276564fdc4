"""Networks of namespaces: what paths do, and that nothing is left behind, whatever ends them."""

import json
import os
import signal
import subprocess
import sys
import time
from ipaddress import ip_address
from pathlib import Path

import pytest

from netlab import ledger, namespace
from netlab.capture import Capture
from netlab.errors import LabError, NotReadyError
from netlab.network import Network
from netlab.pings import largest, ping
from netlab.shape import Shape
from netlab.topology import TOPOLOGIES

pytestmark = pytest.mark.root
LAB = Path(__file__).resolve().parents[2] / "netns-lab"


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_every_client_reaches_the_server_in_both_families(name):
    with Network() as network:
        site = TOPOLOGIES[name].build(network)
        for client in site.clients.values():
            for version in (4, 6):
                assert ping(client, site.server_address(version, client)).ok


def test_router_lets_exactly_its_mtu_through_with_and_without_a_word():
    with Network() as network:
        site = TOPOLOGIES["path"].build(network)
        site.path.set_mtu(1400)
        site.path.router.set_silent(True)
        for version in (4, 6):
            assert largest(site.client, site.server_address(version), low=1300, high=1500, tries=1) == 1400


def test_path_dies_and_comes_back_and_so_does_its_carrier():
    with Network() as network:
        site = TOPOLOGIES["path"].build(network)
        address = site.server_address(4)
        site.path.router.set_dead(True)
        assert not ping(site.client, address, wait=0.2).ok
        site.path.router.set_dead(False)
        assert ping(site.client, address).ok
        site.path.set_carrier(False)
        assert not ping(site.client, address, wait=0.2).ok
        site.path.set_carrier(True)
        for version in (4, 6):
            assert ping(site.client, site.server_address(version)).ok


def test_address_and_device_can_be_taken_away_under_way():
    with Network() as network:
        site = TOPOLOGIES["path"].build(network)
        end = site.path.at_client
        site.client.remove_address(end.device, end.ipv4)
        assert not ping(site.client, site.server_address(4), wait=0.2).ok
        assert ping(site.client, site.server_address(6)).ok
        site.client.remove_device(end.device)
        assert not ping(site.client, site.server_address(6), wait=0.2).ok


def test_nat_gives_a_flow_another_port_once_it_has_forgotten_it():
    with Network() as network:
        site = TOPOLOGIES["nat"].build(network)
        code = (
            "import socket, sys, time\n"
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            f"server = ({str(site.server_address(4))!r}, 9000)\n"
            "for number in range(100):\n"
            "    s.sendto(b'here', server); number == 10 and print('sending', flush=True); time.sleep(0.01)\n"
        )
        with Capture(site.server, site.path.at_server.device) as capture:
            sender = site.client.start([sys.executable, "-c", code], name="sender")
            sender.wait_for("sending")
            site.path.router.forget_nat()
            sender.wait(timeout=10)
        packets = [packet for packet in capture.packets() if packet.destination_port == 9000]
        ports = list(dict.fromkeys(packet.source_port for packet in packets))
        assert {str(packet.source) for packet in packets} == {str(site.path.at_router_far.ipv4.ip)}
        assert len(ports) == 2


def test_one_family_can_die_alone():
    with Network() as network:
        site = TOPOLOGIES["path"].build(network)
        site.path.router.set_dead(True, version=6)
        assert ping(site.client, site.server_address(4)).ok
        assert not ping(site.client, site.server_address(6), wait=0.2).ok


def test_second_path_is_used_by_what_is_sent_from_its_address():
    with Network() as network:
        site = TOPOLOGIES["two-paths"].build(network)
        second = site.paths["r2"]
        with Capture(second.router_host, second.at_router_near.device) as capture:
            command = ["ping", "-n", "-c", "1", "-W", "1", "-I", str(second.at_client.ipv4.ip)]
            site.client.run([*command, str(site.server_address(4))])
        assert len([packet for packet in capture.packets() if packet.version == 4]) == 2


def test_emulator_delays_and_its_settings_change_under_way():
    with Network(backend="emulator") as network:
        site = TOPOLOGIES["path"].build(network)
        site.path.set_shape(Shape(delay_s=0.02))
        slow = ping(site.client, site.server_address(4), count=3)
        site.path.set_shape(Shape(loss=1.0))
        lost = ping(site.client, site.server_address(4), wait=0.2)
        assert min(slow.times) >= 40.0
        assert not lost.ok


def test_capture_sees_each_packet_with_its_size_and_direction():
    with Network() as network:
        site = TOPOLOGIES["path"].build(network)
        end = site.path.at_router_near
        with Capture(end.host, end.device) as capture:
            ping(site.client, site.server_address(4), size=777)
        seen = [(packet.length, packet.outgoing) for packet in capture.packets() if packet.version == 4]
        assert seen == [(777, False), (777, True)]
        assert capture.dropped == 0


def test_capture_goes_on_when_its_device_is_switched_off_and_on():
    with Network() as network:
        site = TOPOLOGIES["path"].build(network)
        end = site.path.at_router_near
        with Capture(end.host, end.device) as capture:
            ping(site.client, site.server_address(4), size=777)
            site.path.set_carrier(False)
            site.path.set_carrier(True)
            assert ping(site.client, site.server_address(4), size=888).ok
        seen = [packet.length for packet in capture.packets() if packet.version == 4]
        assert seen == [777, 777, 888, 888]


def test_capture_that_cannot_be_read_says_so():
    with Network() as network:
        host = network.host("a")
        capture = Capture(host, "lo")
        capture._drain = fail_to_read
        with pytest.raises(LabError, match="capture on lo of a has failed"), capture:
            ping(host, ip_address("127.0.0.1"))


def fail_to_read() -> None:
    raise OSError("as it were")


def test_emulator_that_died_is_no_fault_of_the_tunnel():
    with Network(backend="emulator") as network:
        site = TOPOLOGIES["path"].build(network)
        site.path.set_shape(Shape(delay_s=0.001))
        backend = network.backend(site.path.router_host)
        assert backend.unintended_drops(site.path.router_host) == 0
        backend._process.stop()
        with pytest.raises(LabError, match="the emulator ended with code"):
            backend.unintended_drops(site.path.router_host)


def test_names_are_known_to_one_host_alone():
    with Network() as network:
        host, other = network.host("a"), network.host("b")
        host.set_names({"server.lab.example": [*[network.link(host, other).b.ipv4.ip]]})
        assert host.run(["getent", "hosts", "server.lab.example"]).ok
        assert not other.run(["getent", "hosts", "server.lab.example"], check=False).ok
        directory = ledger.CONFIGURATION_DIRECTORY / host.namespace
        assert directory.exists()
    assert not directory.exists()


def test_process_that_ends_early_is_reported_with_what_it_said():
    with Network() as network:
        daemon = network.host("a").start(["sh", "-c", "echo no such thing; exit 3"], name="broken")
        with pytest.raises(NotReadyError, match="code 3"):
            daemon.wait_for("ready", timeout=5)


def test_failure_inside_takes_everything_down():
    def fail() -> None:
        with Network() as network:
            names.extend(host.namespace for host in TOPOLOGIES["path"].build(network).network.hosts.values())
            raise RuntimeError("as it were")

    names: list[str] = []
    with pytest.raises(RuntimeError, match="as it were"):
        fail()
    assert names
    assert not any(namespace.exists(name) for name in names)


def start_a_run() -> tuple[subprocess.Popen[str], str]:
    """Start a run in another process that waits for ever, and return it with its tag once it is up."""
    code = (
        "import sys, time\n"
        f"sys.path.insert(0, {str(LAB)!r})\n"
        "from netlab.network import Network\n"
        "from netlab.shape import Shape\n"
        "from netlab.topology import TOPOLOGIES\n"
        "with Network(backend='emulator') as network:\n"
        "    site = TOPOLOGIES['path'].build(network)\n"
        "    site.path.set_shape(Shape(delay_s=0.001))\n"
        "    site.client.start(['sh', '-c', 'sleep 300 & sleep 300'], name='sleeper')\n"
        "    print(network.tag, flush=True)\n"
        "    time.sleep(300)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def pids_of(tag: str) -> list[int]:
    entry = json.loads((ledger.STATE_DIRECTORY / f"{tag}.json").read_text())
    inside = [pid for name in entry["namespaces"] for pid in namespace.pids(name)]
    return [process["pid"] for process in entry["processes"]] + inside


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_takes_everything_down(number):
    process, tag = start_a_run()
    pids = pids_of(tag)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert not list(namespace.DIRECTORY.glob(f"{ledger.PREFIX}-{tag}-*"))
    assert not any(ledger.start_time(pid) for pid in pids)
    assert not (ledger.STATE_DIRECTORY / f"{tag}.json").exists()


def test_state_file_names_its_owner_from_the_first_moment(monkeypatch):
    # Without one, `lab clean` in another process would take down a run that is just beginning.
    seen = []
    monkeypatch.setattr(Path, "hardlink_to", lambda self, new: seen.append(json.loads(new.read_text())["owner"]))
    monkeypatch.setattr(
        Path, "touch", lambda self, **_: seen.append(self.name) if self.suffix == ".json" else None
    )
    opened = ledger.Ledger.open()
    opened.take_down()
    assert seen == [{"pid": os.getpid(), "started": ledger.start_time(os.getpid())}]


def test_half_written_state_of_a_killed_run_goes_with_it():
    opened = ledger.Ledger.open()
    new = ledger.STATE_DIRECTORY / f"{opened.tag}.new.{os.getpid()}"
    new.write_text("{")
    opened.take_down()
    assert not new.exists()


def test_clean_removes_what_a_killed_run_left_and_nothing_of_one_that_lives():
    killed, dead_tag = start_a_run()
    living, living_tag = start_a_run()
    try:
        pids = pids_of(dead_tag)
        killed.kill()
        killed.communicate()
        removed = ledger.clean()
        assert any(dead_tag in what for what in removed)
        assert not any(living_tag in what for what in removed)
        deadline = time.monotonic() + 5
        while any(ledger.start_time(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(ledger.start_time(pid) for pid in pids)
        assert not list(namespace.DIRECTORY.glob(f"{ledger.PREFIX}-{dead_tag}-*"))
        assert len(list(namespace.DIRECTORY.glob(f"{ledger.PREFIX}-{living_tag}-*"))) == 3
    finally:
        living.send_signal(signal.SIGTERM)
        living.communicate(timeout=20)


def test_process_id_that_was_used_again_is_not_taken_for_ours():
    process = ledger.Process(pid=os.getpid(), started=ledger.start_time(os.getpid()) - 1)
    assert not process.is_alive()
