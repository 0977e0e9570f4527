"""The helper process of :mod:`referee.trace.crew`: claims stretches of a file, decodes them, sends columns back."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

from referee.trace.blob import FileBlob
from referee.trace.decode import Vocabulary
from referee.trace.memory import collector_paused
from referee.trace.pieces import PieceReader

_TICKET_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the helper is given: an open file, the queue to claim stretches from, and the stretches."""

    text: int
    queue: int
    stretches: Sequence[tuple[int, int]]


def ticket(index: int) -> bytes:
    """The queue's entry for stretch number ``index``."""
    return index.to_bytes(_TICKET_BYTES, "little")


def claim(queue: int) -> int | None:
    """The number of the next stretch that nobody has taken; ``None`` when there is none left."""
    entry = os.read(queue, _TICKET_BYTES)
    return int.from_bytes(entry, "little") if len(entry) == _TICKET_BYTES else None


def serve(job: Job, answers: BinaryIO) -> None:
    """Decode until the queue is empty. Answers ``(number, piece or None)`` for each stretch, then the vocabulary."""
    words = Vocabulary()
    reader = PieceReader(FileBlob(job.text), words)
    with collector_paused():
        while (index := claim(job.queue)) is not None:
            piece = reader.read(*job.stretches[index])
            # Begin and end events refer to text of this process: such a piece is left to the other one.
            answer = None if piece is None or piece.halves else piece
            pickle.dump((index, answer), answers, protocol=5)
    pickle.dump(words, answers, protocol=5)
    answers.flush()


def main() -> None:
    """Serve the job that comes over standard input; answer over standard output."""
    serve(pickle.load(sys.stdin.buffer), sys.stdout.buffer)
