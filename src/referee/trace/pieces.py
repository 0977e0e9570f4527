"""How is a long list of events taken in pieces? Cuts, and the typed decode of what lies between two of them."""

from __future__ import annotations

from referee.trace.blob import Blob
from referee.trace.decode import Piece, Vocabulary, decode
from referee.trace.document import find_edge

PIECE_BYTES = 1 << 19
"""Text decoded at a time. Its events and their columns stay in a processor's own cache (512 KiB beat 16 MiB by a
fifth on an EPYC with 1 MiB of it per core), and little memory is taken at once."""


def plan_cuts(blob: Blob, start: int, *, piece_bytes: int | None = None) -> list[int]:
    """Offsets from ``start`` on that look like boundaries of events, about ``piece_bytes`` apart."""
    size = piece_bytes or PIECE_BYTES
    cuts = [start]
    while (edge := find_edge(blob, cuts[-1] + size)) is not None:
        cuts.append(edge)
    return cuts


class PieceReader:
    """Decodes stretches of one text into columns, through one buffer."""

    def __init__(self, blob: Blob, words: Vocabulary) -> None:
        self._blob = blob
        self._words = words
        self._buffer = bytearray(0)

    def read(self, start: int, stop: int) -> Piece | None:
        """The events between two cuts; ``None`` if the stretch is no whole number of valid events.

        The text lies in the buffer behind an opening bracket, and the comma before its first event is blanked.
        """
        size = stop - start
        if len(self._buffer) < size + 2:
            self._buffer = bytearray(2 * size + 2)
        view = memoryview(self._buffer)[: size + 2]
        if self._blob.read_into(view[1:-1], start) != size:
            return None
        view[:1], view[-1:] = b"[", b"]"
        blanks = bytes(view[1:64])
        comma = len(blanks) - len(blanks.lstrip(b" \t\r\n"))
        if blanks[comma : comma + 1] == b",":
            view[1 + comma : 2 + comma] = b" "
        return decode(view, words=self._words)
