"""The nonce of a packet on any path (RFC 10069 §2.4): IV xor (path id, 32 bits | 2 zero bits | packet number, 62).

All paths share one key, so the path id is what keeps their nonces apart; on path 0 the nonce is that of RFC 9001
§5.3. path_iv() takes the part that a path's packets share, so that a burst only adds its packet numbers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["NONCE_SIZE", "nonce", "nonce_rows", "path_iv"]

NONCE_SIZE = 12


def path_iv(iv: int, path_id: int) -> int:
    """Return the IV of a path, as a number of 96 bits: a nonce is it xor the packet number."""
    return iv ^ path_id << 64


def nonce(iv: int, path_id: int, number: int) -> bytes:
    """Return the nonce of one packet, 12 bytes. iv: a number of 96 bits."""
    return (path_iv(iv, path_id) ^ number).to_bytes(NONCE_SIZE)


def nonce_rows(iv: int, path_id: int, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
    """Return the nonces of a burst, one a row of 12 bytes. numbers: packet numbers, one a nonce."""
    base = path_iv(iv, path_id)
    rows = np.empty((len(numbers), NONCE_SIZE), dtype=np.uint8)
    rows[:, :4] = np.frombuffer((base >> 64).to_bytes(4), dtype=np.uint8)
    low = np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)
    rows[:, 4:] = (numbers ^ low).astype(">u8").view(np.uint8).reshape(len(numbers), 8)
    return rows
