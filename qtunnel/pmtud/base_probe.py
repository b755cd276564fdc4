"""The question whether a path carries the base size at all: a probe, up to MAX_PROBES times (RFC 8899 §5.2)."""

from __future__ import annotations

from qtunnel.pmtud.config import MAX_PROBES, PROBE_TIMER

__all__ = ["BaseProbe"]


class BaseProbe:
    """When the next probe of the base size is due. Times in seconds.

    due_at: None when there is nothing to ask. losses: in a row.
    """

    __slots__ = ("due_at", "losses")

    def __init__(self) -> None:
        self.due_at: float | None = None
        self.losses = 0

    def ask(self, now: float) -> None:
        """Begin: a probe goes out at once (RFC 8899 §5.2, BASE)."""
        self.due_at = now
        self.losses = 0

    def stop(self) -> None:
        """There is nothing to ask any more."""
        self.due_at = None
        self.losses = 0

    def take(self, now: float) -> bool:
        """Return whether a probe is to be sent now; should nobody say what became of it, another follows."""
        if self.due_at is None or now < self.due_at:
            return False
        self.due_at = now + PROBE_TIMER
        return True

    def on_lost(self, now: float) -> bool:
        """Take note that one was lost. Return whether that is one too many; it is asked again later, even so."""
        self.losses += 1
        has_failed = self.losses >= MAX_PROBES
        self.due_at = now + PROBE_TIMER if has_failed else now
        return has_failed

    def on_discarded(self, now: float) -> None:
        """Take note that nobody will say what became of one: another goes out at once."""
        self.due_at = now
