"""Stateless resets: the right token, shorter than the trigger, limited in number."""

from __future__ import annotations

import random

import pytest

from qtunnel.quic.stateless_reset import MIN_RESET_SIZE, StatelessResetter, reset_token

KEY = b"r" * 32


def resetter() -> StatelessResetter:
    return StatelessResetter(key=KEY, random_bytes=random.Random(4).randbytes)


def test_the_token_depends_on_key_and_connection_id_only() -> None:
    assert reset_token(KEY, b"abcd") == reset_token(KEY, b"abcd")
    assert len({reset_token(KEY, b"abcd"), reset_token(KEY, b"abce"), reset_token(b"x" * 32, b"abcd")}) == 3
    assert len(reset_token(KEY, b"abcd")) == 16


@pytest.mark.parametrize("size", [22, 23, 43, 44, 100, 1472])
def test_a_reset_is_shorter_than_its_trigger_and_looks_like_a_short_header(size: int) -> None:
    answer = resetter().answer(bytes(size), b"abcd", 1.0)
    assert answer is not None
    assert MIN_RESET_SIZE <= len(answer) < size
    assert answer[0] & 0xC0 == 0x40
    assert answer.endswith(reset_token(KEY, b"abcd"))


@pytest.mark.parametrize("size", [0, 1, 5, 21])
def test_what_is_too_short_gets_no_answer(size: int) -> None:
    assert resetter().answer(bytes(size), b"abcd", 1.0) is None


def test_two_endpoints_cannot_keep_each_other_busy() -> None:
    one, other = resetter(), resetter()
    data: bytes | None = bytes(1200)
    exchanged = 0
    while data is not None:
        data = one.answer(data, b"abcd", 1.0)
        one, other = other, one
        exchanged += 1
    assert exchanged < 30


def test_the_rate_is_limited() -> None:
    limited = resetter()
    answers = [limited.answer(bytes(100), b"abcd", 1.0) for _ in range(1000)]
    assert sum(answer is not None for answer in answers) <= 100
