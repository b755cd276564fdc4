from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_network

import pytest

from qtunnel.config import ServerConfig, User, token_digest
from qtunnel.errors import PeerProtocolError
from qtunnel.masque.request import Headers, build_request
from qtunnel.masque.uri_template import default_template
from qtunnel.tunnel.address_pool import AddressPool
from qtunnel.tunnel.admission import Admission, Admitted, PendingName, Refused

TOKEN = "correct-horse"
ALICE = User(name="alice", token_sha256=token_digest(TOKEN))


def admission(*users: User, pool4: str = "10.77.0.1/24") -> Admission:
    config = ServerConfig(pool4=IPv4Interface(pool4), pool6=IPv6Interface("fd00:77::1/64"))
    return Admission(config, AddressPool(config.pool4, config.pool6), users or (ALICE,))


def request(token: str | None = TOKEN, target: str = "*", ipproto: str = "*") -> Headers:
    return build_request(template=default_template("vpn.test", 443), target=target, ipproto=ipproto, token=token)


def status_of(verdict: object) -> int:
    assert isinstance(verdict, Refused)
    assert dict(verdict.headers)[b":status"] == str(verdict.status).encode()
    return verdict.status


def test_cip_87_the_right_token_gets_addresses_of_both_families() -> None:
    verdict = admission().decide(request(), end=False)
    assert isinstance(verdict, Admitted)
    assert verdict.user is ALICE
    assert [address.version for address in verdict.lease.addresses()] == [4, 6]
    assert verdict.scope is None


@pytest.mark.parametrize("token", [None, "wrong", TOKEN + "x", TOKEN.upper()])
def test_cip_87_no_token_or_a_wrong_one_is_refused_with_401_and_a_close(token: str | None) -> None:
    verdict = admission().decide(request(token), end=False)
    assert status_of(verdict) == 401
    assert isinstance(verdict, Refused)
    assert verdict.close


def test_the_refusal_does_not_repeat_the_token() -> None:
    verdict = admission().decide(request("wrong-token-of-somebody"), end=False)
    assert isinstance(verdict, Refused)
    assert "wrong-token-of-somebody" not in f"{verdict!r} {verdict.text} {verdict.headers}"


def test_a_removed_user_is_refused() -> None:
    each = admission()
    each.set_users(())
    assert status_of(each.decide(request(), end=False)) == 401


def test_a_request_that_ends_at_once_is_refused() -> None:
    assert status_of(admission().decide(request(), end=True)) == 400


def test_a_full_pool_is_503() -> None:
    users = [User(name=f"u{n}", token_sha256=token_digest(f"t{n}")) for n in range(3)]
    each = admission(*users, pool4="10.77.0.1/30")
    assert isinstance(each.decide(request("t0"), end=False), Admitted)
    assert status_of(each.decide(request("t1"), end=False)) == 503


def test_cip_14_a_host_name_is_resolved_before_the_answer() -> None:
    each = admission()
    verdict = each.decide(request(target="host.example"), end=False)
    assert isinstance(verdict, PendingName)
    assert verdict.name == "host.example"
    answer = each.resolved(verdict, [ip_address("192.0.2.7"), ip_address("2001:db8::7")])
    assert isinstance(answer, Admitted)
    assert answer.scope == (ip_network("192.0.2.7/32"), ip_network("2001:db8::7/128"))


def test_cip_15_a_name_that_does_not_resolve_is_refused_with_proxy_status() -> None:
    each = admission()
    verdict = each.decide(request(target="host.example"), end=False)
    assert isinstance(verdict, PendingName)
    answer = each.resolved(verdict, [])
    assert status_of(answer) == 502
    assert isinstance(answer, Refused)
    assert b"dns_error" in dict(answer.headers)[b"proxy-status"]


def test_cip_31_only_addresses_of_an_assigned_family_are_in_scope() -> None:
    config = ServerConfig(pool4=IPv4Interface("10.77.0.1/24"))
    each = Admission(config, AddressPool(config.pool4, None), (ALICE,))
    verdict = each.decide(request(target="host.example"), end=False)
    assert isinstance(verdict, PendingName)
    answer = each.resolved(verdict, [ip_address("192.0.2.7"), ip_address("2001:db8::7")])
    assert isinstance(answer, Admitted)
    assert answer.scope == (ip_network("192.0.2.7/32"),)
    assert status_of(each.resolved(verdict, [ip_address("2001:db8::7")])) == 502


def test_the_scope_of_a_request_is_kept() -> None:
    verdict = admission().decide(request(target="192.0.2.0/24", ipproto="17"), end=False)
    assert isinstance(verdict, Admitted)
    assert verdict.scope == (ip_network("192.0.2.0/24"),)
    assert verdict.protocol == 17


def test_a_malformed_request_is_the_peers_fault() -> None:
    headers = [field for field in request() if field[0] != b":path"]
    with pytest.raises(PeerProtocolError):
        admission().decide(headers, end=False)
