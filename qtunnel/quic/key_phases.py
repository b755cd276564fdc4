"""Keys of the previous, the present and the next phase, and when they change (RFC 9001 §6).

An update is routine: at 1 Gbit/s 2^22 packets take 45 seconds. We begin one when update_after packets were
sealed, and follow the peer's. Packets of the previous phase that come late are opened for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aioquic.tls import CipherSuite

from qtunnel.packet_run import PacketRun
from qtunnel.quic.packet_protection import PacketKeys
from qtunnel.quic.run_opening import OpenedRun, RunOpener

__all__ = ["KeyPhases"]

SEAL_LIMIT: Final = 1 << 23
"""Packets one AES-GCM key may seal (RFC 9001 §6.6); reached only if the peer never acknowledges an update."""
OPEN_LIMIT: Final = 1 << 36
"""Forged packets after which the connection ends (RFC 9001 §6.6: 2^52 for AES-GCM, 2^36 for ChaCha20)."""


class KeyPhases:
    """Both directions of one connection.

    on_update is told when the keys have changed, so that others who hold keys can follow.
    """

    def __init__(
        self,
        cipher_suite: CipherSuite,
        *,
        send_secret: bytes,
        receive_secret: bytes,
        key_phase: int,
        on_update: Callable[[], None],
        update_after: int,
    ) -> None:
        self.send = PacketKeys(cipher_suite, send_secret, key_phase=key_phase)
        self.receive = PacketKeys(cipher_suite, receive_secret, key_phase=key_phase)
        self.updates = 0
        self._next = self.receive.update()
        self._previous: PacketKeys | None = None
        self._previous_until = 0.0
        self._update_after = update_after
        self._on_update = on_update
        self._first_sent = 0  # of the present phase
        self._first_received: int | None = None
        self._is_confirmed = True  # a packet of the present phase was acknowledged
        self._peer_has_followed = True

    @property
    def is_exhausted(self) -> bool:
        """Whether the keys have reached a limit: close, and send nothing more under them."""
        return self.send.sealed >= SEAL_LIMIT or self.receive.failed >= OPEN_LIMIT

    def maybe_update(self, next_number: int, now: float, pto: float) -> None:
        """Begin an update if it is time and the last one is confirmed (§6.1)."""
        if self.send.sealed >= self._update_after and self._is_confirmed and self._peer_has_followed:
            self.update(next_number, now, pto)

    def update(self, next_number: int, now: float, pto: float) -> None:
        """Seal with the next keys from now on; packets before next_number had the present ones."""
        self.send = self.send.update()
        self._rotate_receive(now, pto)
        self._first_sent = next_number
        self._first_received = None
        self._is_confirmed = False
        self._peer_has_followed = False
        self.updates += 1
        self._on_update()

    def acknowledged(self, largest: int) -> None:
        """Note that the peer has acknowledged a packet of ours."""
        if largest >= self._first_sent:
            self._is_confirmed = True

    def open(
        self, body: bytes, header: bytes, number: int, phase: int, now: float, pto: float, next_number: int
    ) -> bytes | None:
        """Return the payload of one packet of path 0, or None. phase: its key phase bit.

        A packet of the other phase is the next one's, which starts an update, or a late one of the previous.
        """
        keys = self.receive
        if phase == keys.key_phase:
            payload = keys.open(body, header, number)
            if payload is not None:
                self._peer_has_followed = True
                if self._first_received is None or number < self._first_received:
                    self._first_received = number
            return payload
        if self._previous is not None and now > self._previous_until:
            self._previous = None
        is_late = self._first_received is None or number < self._first_received
        if self._previous is not None and is_late:
            payload = self._previous.open(body, header, number)
            if payload is not None:
                return payload
        if not self._peer_has_followed:
            return None  # two phases ahead of the peer's is nothing it can send
        payload = self._next.open(body, header, number)
        if payload is not None:
            self.update(next_number, now, pto)
            self._peer_has_followed = True
            self._first_received = number
        return payload

    def open_run(self, opener: RunOpener, run: PacketRun, expected: int) -> OpenedRun | None:
        """Open packets of one size with the present keys, or none of them (run_opening.py)."""
        opened = opener.open(self.receive, run, expected)
        if opened is not None:
            self._peer_has_followed = True
            if self._first_received is None:
                self._first_received = int(opened.numbers[0])
        return opened

    def _rotate_receive(self, now: float, pto: float) -> None:
        self._previous, self.receive = self.receive, self._next
        self._previous_until = now + 3 * pto
        self._next = self.receive.update()
