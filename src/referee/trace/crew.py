"""Who decodes which piece? This process alone, or with a helper process where the text is long enough to share.

The helper reads the same file at the same offsets, so no text is passed; it sends back columns. Which of the two takes
a piece is settled by a queue in a pipe: all piece numbers are written into it, and who is free reads the next one.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, BinaryIO, cast

import numpy as np

from referee.trace.blob import Blob
from referee.trace.decode import Codes, Piece, Vocabulary
from referee.trace.fork import Helper, fork, may_fork
from referee.trace.pieces import PieceReader
from referee.trace.worker import Job, claim, serve, ticket

SHARE_FROM_BYTES = 64 << 20
"""Below this much text the helper's start (about 0.2 s) costs more than it saves."""


class HelperMissing(Exception):
    """The system has no process or thread to spare."""


def read_ahead(
    blob: Blob, cuts: Sequence[int], *, words: Vocabulary, meanwhile: Callable[[], object] | None = None
) -> dict[int, Piece | None]:
    """The pieces from one cut to the next, by number, read together with a helper; none where that does not pay.

    ``None`` stands for a stretch that is no whole number of valid events. What a helper fails to deliver is absent.
    ``meanwhile`` is done here once the helper is at work; where there is none, it is left undone.
    """
    if blob.descriptor is None or cuts[-1] - cuts[0] < SHARE_FROM_BYTES or (os.cpu_count() or 1) < 2:
        return {}
    try:
        return _shared(blob, blob.descriptor, list(pairwise(cuts)), words, meanwhile or _nothing)
    except HelperMissing:
        return {}


def _nothing() -> None:
    """What else there is to do while a helper works."""


def _shared(
    blob: Blob,
    descriptor: int,
    stretches: Sequence[tuple[int, int]],
    words: Vocabulary,
    meanwhile: Callable[[], object],
) -> dict[int, Piece | None]:
    """Read stretches together with a helper."""
    queue, queue_in = os.pipe()
    try:
        helper = _Helper(Job(text=descriptor, queue=queue, stretches=stretches), queue_in=queue_in)
    except OSError as error:
        os.close(queue)
        os.close(queue_in)
        raise HelperMissing from error
    feeder = threading.Thread(target=_feed, args=(queue_in, len(stretches)), daemon=True)
    feeder.start()
    reader = PieceReader(blob, words)
    own: dict[int, Piece | None] = {}
    try:
        meanwhile()
        while (index := claim(queue)) is not None:
            own[index] = reader.read(*stretches[index])
        helper.wait()
    finally:
        helper.stop()
        os.close(queue)
        feeder.join()
    return own | helper.pieces_in(words)


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

    def __init__(self, job: Job, *, queue_in: int) -> None:
        # As long as anybody has the end open that is written to, the queue has no end.
        self._process = fork(partial(serve, job), unused=(queue_in,)) if may_fork() else _start(job)
        self._pieces: dict[int, Piece | None] = {}
        self._words: Vocabulary | None = None
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        """Collect answers until the vocabulary, which comes last; a helper that dies leaves what it had answered."""
        try:
            while self._words is None:
                answer: Any = pickle.load(self._process.answers)
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
        self._process.end()
        self._thread.join()
        self._process.answers.close()

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


def _start(job: Job) -> Helper:
    """A new process with the same interpreter and import path."""
    import subprocess

    code = f"import sys; sys.path[:] = {sys.path!r}; from referee.trace.worker import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(job.text, job.queue),
    )
    requests, answers = process.stdin, process.stdout
    if requests is None or answers is None:
        raise AssertionError("both streams are pipes")
    with suppress(BrokenPipeError), requests:
        pickle.dump(job, requests)

    def end() -> None:
        process.kill()
        process.wait()

    return Helper(answers=cast("BinaryIO", answers), end=end)


def _translation(theirs: Codes, ours: Codes) -> Any:
    """For each of their codes: ours."""
    return np.array([ours[value] for value in theirs] or [0], np.int32)
