"""One tunnel, from its 2xx to the end of its request stream (RFC 9484 §4.7, §5, §6), the same on both sides.

              CLOSE                  END
        OPEN --------> CLOSING --------------> CLOSED
          |               |                      ^
          |               | RESET                |
          |               v                      |
          +----------> ABORTED                   |
          |  RESET or VIOLATION                  |
          +--------------------------------------+
             END

What the peer makes us keep is bounded: one capsule of max_capsule bytes, MAX_ADDRESSES addresses, MAX_RANGES
ranges, MAX_ADDRESSES requests not yet answered, and the last MAX_ADDRESSES Request IDs that were. Events are only
as many as the bytes of one call make; take them all after each call.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from qtunnel.config import IPInterface, PeerQuirks
from qtunnel.drops import DropCounts, DropReason
from qtunnel.errors import LocalProtocolError, PeerProtocolError
from qtunnel.masque.address_capsules import (
    MAX_ADDRESSES,
    AddressRange,
    AssignedAddress,
    RequestedAddress,
    decode_address_assign,
    decode_address_request,
    decode_route_advertisement,
    encode_address_assign,
    encode_address_request,
    encode_route_advertisement,
    match_requests,
)
from qtunnel.masque.capsule import MAX_CAPSULE_LENGTH, Capsule, CapsuleParser, CapsuleType, encode_capsule
from qtunnel.masque.datagram import CONTEXT_PREFIX, ContextAllocator, parse_datagram
from qtunnel.masque.error_codes import HttpErrorCode
from qtunnel.masque.events import (
    AddressesAssigned,
    AddressesRequested,
    PacketsInCapsules,
    RoutesAdvertised,
    SessionEnded,
    SessionEvent,
)

__all__ = ["TRANSITIONS", "Session", "SessionInput", "SessionState"]

logger = logging.getLogger(__name__)


MAX_KEPT_BY_QUIRK: Final = 64
"""Entries of one family kept while a capsule replaces the other's. Each capsule repeats them in its event, so
without this bound a few bytes could cost us thousands of entries; the peer with this quirk sends one."""


class SessionState(Enum):
    """Where the request stream is."""

    OPEN = "open"
    CLOSING = "closing"  # ended by us; what the peer still sends is of no use
    CLOSED = "closed"  # ended by the peer
    ABORTED = "aborted"  # reset by either end


class SessionInput(Enum):
    """What can happen to it."""

    SEND = "send"
    RECEIVE = "receive"
    CLOSE = "close"  # we end it
    END = "end"  # the peer ends it
    RESET = "reset"
    VIOLATION = "violation"  # the peer broke a rule


_State, _Input = SessionState, SessionInput

TRANSITIONS: Final[dict[tuple[SessionState, SessionInput], SessionState]] = {
    (_State.OPEN, _Input.SEND): _State.OPEN,
    (_State.OPEN, _Input.RECEIVE): _State.OPEN,
    (_State.OPEN, _Input.CLOSE): _State.CLOSING,
    (_State.OPEN, _Input.END): _State.CLOSED,
    (_State.OPEN, _Input.RESET): _State.ABORTED,
    (_State.OPEN, _Input.VIOLATION): _State.ABORTED,
    (_State.CLOSING, _Input.RECEIVE): _State.CLOSING,
    (_State.CLOSING, _Input.CLOSE): _State.CLOSING,
    (_State.CLOSING, _Input.END): _State.CLOSED,
    (_State.CLOSING, _Input.RESET): _State.ABORTED,
    # What was under way when it ended may still arrive.
    (_State.CLOSED, _Input.RECEIVE): _State.CLOSED,
    (_State.CLOSED, _Input.CLOSE): _State.CLOSED,
    (_State.CLOSED, _Input.END): _State.CLOSED,
    (_State.CLOSED, _Input.RESET): _State.CLOSED,
    (_State.ABORTED, _Input.RECEIVE): _State.ABORTED,
    (_State.ABORTED, _Input.CLOSE): _State.ABORTED,
    (_State.ABORTED, _Input.END): _State.ABORTED,
    (_State.ABORTED, _Input.RESET): _State.ABORTED,
}
"""A pair that is missing is a mistake of the caller: sending after the end. Nothing is parsed after it either."""


class Session:
    """Capsules and datagrams of one request stream. Made once the 2xx was sent or received.

    quirks: MQVPN tolerates three breaches of RFC 9484: lists of one family that leave the other as it is, in
    ADDRESS_ASSIGN and in ROUTE_ADVERTISEMENT, and assigned addresses with bits below their prefix length
    (docs/design/0006-peer-quirks.md). drops counts datagrams that carried no inner packet.
    """

    def __init__(
        self, *, is_client: bool, quirks: PeerQuirks = PeerQuirks.NONE, max_capsule: int = MAX_CAPSULE_LENGTH
    ) -> None:
        self.drops = DropCounts()
        self.contexts = ContextAllocator(is_client=is_client)
        self._is_lenient = quirks is PeerQuirks.MQVPN
        self._state = SessionState.OPEN
        self._parser = CapsuleParser(max_length=max_capsule)
        self._oversize_counted = 0
        self._events: deque[SessionEvent] = deque()
        self._packets: list[bytes] = []  # of DATAGRAM capsules, until another event comes
        self._output = bytearray()
        self._next_request_id = 1
        self._assigned: list[AssignedAddress] = []  # by the peer, without refusals
        self._routes: list[AddressRange] = []  # of the peer
        self._unanswered: set[int] = set()
        self._answered: deque[int] = deque(maxlen=MAX_ADDRESSES)

    @property
    def state(self) -> SessionState:
        """Return where the request stream is."""
        return self._state

    @property
    def unanswered_requests(self) -> frozenset[int]:
        """Return the peer's Request IDs that no ADDRESS_ASSIGN of ours has named yet."""
        return frozenset(self._unanswered)

    def receive_stream_data(self, data: bytes, end: bool = False) -> None:
        """Take bytes out of DATA frames, in pieces of any size; end: the peer ended the stream behind them.

        Take the events afterwards, also after an error: those of the capsules ahead of the bad one are there.

        Raises:
            PeerProtocolError: a rule is broken; reset the stream with its error_code. The session has ended.
        """
        if self._apply(SessionInput.RECEIVE) is SessionState.OPEN:
            try:
                for capsule in self._parser.receive_data(data):
                    self._receive_capsule(capsule)
                if end:
                    self._parser.receive_end()
            except PeerProtocolError as error:
                self._apply(SessionInput.VIOLATION, str(error))
                raise
            finally:
                self._count_oversize()
                self._flush_packets()
        if end:
            self._apply(SessionInput.END, "ended by the peer")

    def receive_datagram(self, payload: bytes) -> bytes | None:
        """Return the inner packet of one HTTP Datagram payload, Context ID included, or None and count why not."""
        if self._state is not SessionState.OPEN:
            self.drops[DropReason.STREAM_CLOSED] += 1
            return None
        return parse_datagram(payload, self.drops)

    def receive_reset(self) -> None:
        """Note that the peer reset the stream or asked us to stop sending on it."""
        self._apply(SessionInput.RESET, "reset by the peer")

    def close(self) -> None:
        """End the tunnel from our side; the caller ends the stream behind the last of data_to_send."""
        self._apply(SessionInput.CLOSE, "closed here")

    def data_to_send(self) -> bytes:
        """Return the capsules to send in DATA frames, and forget them."""
        data = bytes(self._output)
        self._output.clear()
        return data

    def next_event(self) -> SessionEvent | None:
        """Return the oldest event not taken yet."""
        return self._events.popleft() if self._events else None

    def request_addresses(self, wishes: Sequence[IPInterface]) -> list[int]:
        """Ask for one address for each wish and return the Request IDs, in the same order.

        A wish for 0.0.0.0/32 or ::/128 leaves the choice to the peer; 0.0.0.0/29 asks for any eight addresses.

        Raises:
            LocalProtocolError: the session has ended, there is no wish, or one has bits below its prefix length.
        """
        self._apply(SessionInput.SEND)
        requests = [
            RequestedAddress(request_id, wish) for request_id, wish in enumerate(wishes, self._next_request_id)
        ]
        self._send_capsule(CapsuleType.ADDRESS_REQUEST, encode_address_request(requests))
        self._next_request_id += len(requests)
        return [request.request_id for request in requests]

    def assign_addresses(self, addresses: Sequence[AssignedAddress]) -> None:
        """Tell the peer all addresses it may use from now on; one that is missing is withdrawn.

        Raises:
            LocalProtocolError: the session has ended, a Request ID is there twice or was never asked with, a
                refusal answers no open request, or an address has bits below its prefix length.
        """
        self._apply(SessionInput.SEND)
        self._check_assignment(addresses)
        self._send_capsule(CapsuleType.ADDRESS_ASSIGN, encode_address_assign(addresses))
        for address in addresses:
            if address.request_id in self._unanswered:
                self._unanswered.remove(address.request_id)
                self._answered.append(address.request_id)

    def answer_requests(
        self, requests: Sequence[RequestedAddress], assigned: Iterable[AssignedAddress], *, ipv6: bool = True
    ) -> list[AssignedAddress]:
        """Answer an AddressesRequested with the full list and return it (RFC 9484 §4.7.2).

        assigned: all addresses the peer has, whatever their Request IDs; each request is matched with them anew,
        so that a peer that asks again is told again. ipv6: false leaves IPv6 out, and refuses it. An answer after
        the session's end is none: the list is empty, as the peer may ask and leave in one breath.
        """
        if self._state is not SessionState.OPEN:
            return []
        prefixes = [entry.prefix for entry in assigned if ipv6 or entry.prefix.version == 4]
        answer = match_requests(requests, prefixes)
        self.assign_addresses(answer)
        return answer

    def advertise_routes(self, ranges: Iterable[AddressRange]) -> None:
        """Tell the peer all ranges we route from now on, in any order; one that is missing is withdrawn.

        Raises:
            LocalProtocolError: the session has ended, or two ranges overlap.
        """
        self._apply(SessionInput.SEND)
        self._send_capsule(CapsuleType.ROUTE_ADVERTISEMENT, encode_route_advertisement(ranges))

    def send_packet_capsule(self, packet: bytes) -> None:
        """Send one inner packet in a DATAGRAM capsule: reliably, in order, split over as many packets as needed.

        Only for packets that no DATAGRAM frame can carry and that may not be refused either (RFC 9484 §10.1); what
        waits in data_to_send has no bound here.

        Raises:
            LocalProtocolError: the session has ended.
        """
        self._apply(SessionInput.SEND)
        self._send_capsule(CapsuleType.DATAGRAM, CONTEXT_PREFIX + packet)

    def _send_capsule(self, capsule_type: CapsuleType, value: bytes) -> None:
        self._output += encode_capsule(capsule_type, value)

    def _check_assignment(self, addresses: Sequence[AssignedAddress]) -> None:
        known = self._unanswered.union(self._answered)
        seen: set[int] = set()
        for address in addresses:
            request_id = address.request_id
            if address.is_refusal and request_id not in self._unanswered:
                raise LocalProtocolError(f"a refusal under Request ID {request_id}, which waits for no answer")
            if request_id == 0:
                continue
            if request_id not in known:
                raise LocalProtocolError(f"the peer did not ask with Request ID {request_id}")
            if request_id in seen:
                raise LocalProtocolError(f"Request ID {request_id} is there twice")
            seen.add(request_id)

    def _receive_capsule(self, capsule: Capsule) -> None:
        match capsule.type:
            case CapsuleType.DATAGRAM:
                packet = parse_datagram(capsule.value, self.drops)
                if packet is not None:
                    self._packets.append(packet)
            case CapsuleType.ADDRESS_ASSIGN:
                self._receive_address_assign(capsule.value)
            case CapsuleType.ADDRESS_REQUEST:
                self._receive_address_request(capsule.value)
            case CapsuleType.ROUTE_ADVERTISEMENT:
                self._receive_route_advertisement(capsule.value)

    def _receive_address_assign(self, value: bytes) -> None:
        entries = decode_address_assign(value, allow_host_bits=self._is_lenient)
        for entry in entries:
            if entry.request_id >= self._next_request_id:
                raise PeerProtocolError(
                    f"the peer answered Request ID {entry.request_id}, which we never sent",
                    error_code=HttpErrorCode.H3_MESSAGE_ERROR,
                )
        assigned = [entry for entry in entries if not entry.is_refusal]
        if self._is_lenient and entries:
            families = {entry.prefix.version for entry in assigned}
            kept = [entry for entry in self._assigned if entry.prefix.version not in families]
            _check_kept(len(kept))
            assigned = sorted([*kept, *assigned], key=lambda entry: entry.prefix.version)
        self._assigned = assigned
        refused = tuple(entry.request_id for entry in entries if entry.is_refusal and entry.request_id)
        addresses = tuple(dict.fromkeys(entry.prefix for entry in assigned))
        self._report(AddressesAssigned(addresses, refused, tuple(entries)))

    def _receive_address_request(self, value: bytes) -> None:
        requests = decode_address_request(value)
        known = self._unanswered.union(self._answered)
        for request in requests:
            if request.request_id in known:
                raise PeerProtocolError(
                    f"the peer used Request ID {request.request_id} twice",
                    error_code=HttpErrorCode.H3_MESSAGE_ERROR,
                )
        if len(self._unanswered) + len(requests) > MAX_ADDRESSES:
            raise PeerProtocolError(
                f"the peer has more than {MAX_ADDRESSES} address requests open",
                error_code=HttpErrorCode.H3_EXCESSIVE_LOAD,
            )
        self._unanswered.update(request.request_id for request in requests)
        self._report(AddressesRequested(tuple(requests)))

    def _receive_route_advertisement(self, value: bytes) -> None:
        ranges = decode_route_advertisement(value)
        if self._is_lenient and ranges:
            families = {item.version for item in ranges}
            kept = [item for item in self._routes if item.version not in families]
            _check_kept(len(kept))
            ranges = sorted([*kept, *ranges], key=lambda item: item.version)
        self._routes = ranges
        self._report(RoutesAdvertised(list(ranges)))

    def _report(self, event: SessionEvent) -> None:
        self._flush_packets()
        self._events.append(event)

    def _flush_packets(self) -> None:
        if self._packets:
            self._events.append(PacketsInCapsules(self._packets))
            self._packets = []

    def _count_oversize(self) -> None:
        """Count DATAGRAM capsules too large for any IP packet, whose bytes the parser skipped."""
        oversize = self._parser.oversize_datagrams - self._oversize_counted
        if oversize:
            self.drops[DropReason.MALFORMED] += oversize
            self._oversize_counted += oversize

    def _apply(self, happened: SessionInput, reason: str = "") -> SessionState:
        """Go where the table says; return the new state."""
        following = TRANSITIONS.get((self._state, happened))
        if following is None:
            raise LocalProtocolError(f"{happened.value} is not possible, the tunnel is {self._state.value}")
        if following is not self._state:
            self._enter(following, reason)
        return following

    def _enter(self, state: SessionState, reason: str) -> None:
        logger.debug("tunnel: %s -> %s, %s", self._state.value, state.value, reason)
        self._state = state
        if state in (SessionState.CLOSED, SessionState.ABORTED):
            self._report(SessionEnded(state is SessionState.CLOSED, reason))


def _check_kept(count: int) -> None:
    if count > MAX_KEPT_BY_QUIRK:
        raise PeerProtocolError(
            f"a list of one family beside {count} entries of the other, at most {MAX_KEPT_BY_QUIRK} are kept",
            error_code=HttpErrorCode.H3_EXCESSIVE_LOAD,
        )
