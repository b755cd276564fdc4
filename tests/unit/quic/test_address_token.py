"""Retry tokens: good for one address, one connection id, a short time, and nobody else can make one."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from qtunnel.burst import Address
from qtunnel.quic.address_token import AddressTokens, TokenFault

ADDRESS: Address = ("198.18.0.1", 4000)
ORIGINAL = b"original"
RETRY = b"retrycid"


def tokens(key: bytes = b"k" * 16, seed: int = 1) -> AddressTokens:
    return AddressTokens(key=key, lifetime=15.0, random_bytes=random.Random(seed).randbytes)


def token(now: float = 100.0) -> bytes:
    return tokens().issue(address=ADDRESS, original_cid=ORIGINAL, retry_cid=RETRY, now=now)


def check(
    data: bytes, *, address: Address = ADDRESS, cid: bytes = RETRY, now: float = 100.0, key: bytes = b"k" * 16
) -> bytes | TokenFault:
    return tokens(key).original_cid(data, address=address, destination_cid=cid, now=now)


def test_a_token_gives_back_the_original_connection_id() -> None:
    assert check(token()) == ORIGINAL
    assert check(token(), now=115.0) == ORIGINAL


def test_a_token_is_good_for_its_lifetime_only() -> None:
    assert check(token(), now=115.1) is TokenFault.NOT_GOOD
    assert check(token(), now=99.0) is TokenFault.NOT_GOOD


def test_a_token_is_bound_to_the_address_and_the_port() -> None:
    assert check(token(), address=("198.18.0.2", 4000)) is TokenFault.NOT_GOOD
    assert check(token(), address=("198.18.0.1", 4001)) is TokenFault.NOT_GOOD
    assert check(token(), address=("2001:db8::1", 4000, 0, 0)) is TokenFault.NOT_GOOD


def test_flow_information_of_an_ipv6_address_does_not_matter() -> None:
    made = tokens().issue(address=("2001:db8::1", 4000, 7, 0), original_cid=ORIGINAL, retry_cid=RETRY, now=100.0)
    assert check(made, address=("2001:db8::1", 4000, 0, 0)) == ORIGINAL


def test_a_token_is_bound_to_the_retry_connection_id() -> None:
    assert check(token(), cid=b"other-id") is TokenFault.NOT_GOOD


def test_another_key_makes_no_good_token() -> None:
    assert check(token(), key=b"x" * 32) is TokenFault.FOREIGN


def test_two_tokens_are_never_alike() -> None:
    maker = tokens()
    made = {maker.issue(address=ADDRESS, original_cid=ORIGINAL, retry_cid=RETRY, now=1.0) for _ in range(100)}
    assert len(made) == 100


@given(st.binary(max_size=120))
def test_any_bytes_are_just_no_token(data: bytes) -> None:
    assert check(data) is TokenFault.FOREIGN


@given(st.integers(min_value=0, max_value=8 * len(token()) - 1))
def test_one_flipped_bit_spoils_a_token(bit: int) -> None:
    data = bytearray(token())
    data[bit // 8] ^= 1 << (bit % 8)
    assert check(bytes(data)) is TokenFault.FOREIGN
