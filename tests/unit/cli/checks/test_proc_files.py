"""Reading /proc, whatever is there."""

from __future__ import annotations

from collections.abc import Callable

from qtunnel.cli.checks.proc_files import CAP_NET_ADMIN, CAP_NET_RAW, ProcFiles

Make = Callable[..., ProcFiles]


def test_a_sysctl_is_a_number_or_nothing(proc_of: Make) -> None:
    proc = proc_of({"sys/net/core/rmem_max": "212992\n", "sys/net/core/text": "a b\n"})
    assert proc.sysctl("net.core.rmem_max") == 212992
    assert proc.sysctl("net.core.text") is None
    assert proc.sysctl("net.core.missing") is None


def test_a_dot_in_an_interface_name_is_written_as_a_slash(proc_of: Make) -> None:
    proc = proc_of({"sys/net/ipv4/conf/eth0.7/rp_filter": "1"})
    assert proc.sysctl("net.ipv4.conf.eth0/7.rp_filter") == 1


def test_interfaces_are_those_with_sysctls_of_their_own(proc_of: Make) -> None:
    names = ("all", "default", "lo", "eth0")
    proc = proc_of({f"sys/net/ipv4/conf/{name}/rp_filter": "0" for name in names})
    assert proc.interfaces("ipv4") == ["eth0", "lo"]
    assert proc.interfaces("ipv6") == []


def test_capabilities_are_bits(proc_of: Make) -> None:
    proc = proc_of(capabilities=1 << CAP_NET_ADMIN)
    assert proc.has_capability(CAP_NET_ADMIN)
    assert not proc.has_capability(CAP_NET_RAW)


def test_udp_counters_of_both_families_are_added(proc_of: Make) -> None:
    proc = proc_of(
        {
            "net/snmp": "Ip: A\nIp: 1\nUdp: InDatagrams RcvbufErrors\nUdp: 10 2\n",
            "net/snmp6": "Ip6InReceives 5\nUdp6RcvbufErrors                    3\nUdp6InErrors 1\n",
        }
    )
    assert proc.udp_counters() == {"InDatagrams": 10, "RcvbufErrors": 5, "InErrors": 1}


def test_nothing_there_is_nothing(tmp_path_factory: object) -> None:
    proc = ProcFiles(__import__("pathlib").Path("/nonexistent"))
    assert proc.capabilities() == 0
    assert proc.udp_counters() == {}
    assert proc.text("self/status") is None
