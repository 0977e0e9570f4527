"""Who decodes which piece? This process alone, or with a helper process where the text is long enough to share.

The helper reads the same file at the same offsets, so no text is passed; it sends back columns. Which of the two takes
a piece is settled by a queue in a pipe: all piece numbers are written into it, and who is free reads the next one.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from referee.trace.blob import Blob
from referee.trace.decode import Codes, Piece, Vocabulary
from referee.trace.pieces import PieceReader
from referee.trace.worker import Job, claim, ticket

SHARE_FROM_BYTES = 64 << 20
"""Below this much text the helper's start (about 0.2 s) costs more than it saves."""


def read_stretches(blob: Blob, cuts: Sequence[int], *, words: Vocabulary) -> list[Piece | None]:
    """The piece between each cut and the next; ``None`` where a stretch is no whole number of valid events."""
    stretches = list(pairwise(cuts))
    if blob.descriptor is not None and cuts[-1] - cuts[0] >= SHARE_FROM_BYTES and (os.cpu_count() or 1) > 1:
        return _shared(blob, blob.descriptor, stretches, words)
    reader = PieceReader(blob, words)
    return [reader.read(start, stop) for start, stop in stretches]


def _shared(blob: Blob, descriptor: int, stretches: Sequence[tuple[int, int]], words: Vocabulary) -> list[Piece | None]:
    """Read stretches together with a helper; whatever it fails to deliver is read here."""
    queue, queue_in = os.pipe()
    helper = _Helper(Job(text=descriptor, queue=queue, stretches=stretches))
    feeder = threading.Thread(target=_feed, args=(queue_in, len(stretches)), daemon=True)
    feeder.start()
    reader = PieceReader(blob, words)
    own: dict[int, Piece | None] = {}
    try:
        while (index := claim(queue)) is not None:
            own[index] = reader.read(*stretches[index])
        helper.wait()
    finally:
        helper.stop()
        os.close(queue)
        feeder.join()
    own |= helper.pieces_in(words)
    return [own[index] if index in own else reader.read(*stretches[index]) for index in range(len(stretches))]


def _feed(queue_in: int, count: int) -> None:
    """Write all tickets; done when the last is taken, or when nobody reads any more."""
    try:
        with os.fdopen(queue_in, "wb") as queue:
            for index in range(count):
                queue.write(ticket(index))
    except BrokenPipeError:
        return


class _Helper:
    """The helper process, and a thread that takes its answers as they come."""

    def __init__(self, job: Job) -> None:
        # The same import path as here, whatever started this process; -c, because -m would import twice.
        code = f"import sys; sys.path[:] = {sys.path!r}; from referee.trace.worker import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(job.text, job.queue),
        )
        self._job = job
        self._pieces: dict[int, Piece | None] = {}
        self._words: Vocabulary | None = None
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        """Collect answers until the vocabulary, which comes last; a helper that dies leaves what it had answered."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            return
        try:
            pickle.dump(self._job, requests)
            requests.close()
            while self._words is None:
                answer: Any = pickle.load(answers)
                if isinstance(answer, Vocabulary):
                    self._words = answer
                else:
                    self._pieces[answer[0]] = answer[1]
        except (OSError, EOFError, pickle.UnpicklingError):
            return

    def wait(self) -> None:
        """Wait for the last answer."""
        self._thread.join()

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._thread.join()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def pieces_in(self, words: Vocabulary) -> dict[int, Piece | None]:
        """The helper's pieces in the codes of ``words``; none if it died before it told what its codes mean."""
        if self._words is None:
            return {}
        names = _translation(self._words.names, words.names)
        categories = _translation(self._words.categories, words.categories)
        threads = _translation(self._words.threads, words.threads)
        return {
            index: None
            if piece is None
            else replace(
                piece, name=names[piece.name], category=categories[piece.category], thread=threads[piece.thread]
            )
            for index, piece in self._pieces.items()
        }


def _translation(theirs: Codes, ours: Codes) -> Any:
    """For each of their codes: ours."""
    return np.array([ours[value] for value in theirs] or [0], np.int32)
