"""What was wrong with the text of this trace? Collects what reading noticed, and says it: as findings, or as an error.

Every byte that is named says of what it is one: of the file, or of the text that was unpacked from it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from referee.errors import TraceError
from referee.records.finding import Finding, Scalar, Severity
from referee.trace.blob import Blob
from referee.trace.inflate import Damage
from referee.trace.salvage import Walk
from referee.trace.unpack import Text

_LOOK = 1 << 16
"""So much of what remains is looked at, to say what it is."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The text ends at ``byte`` before its document does.

    ``after``: where the last whole event ended, or behind the list the last whole value.
    """

    byte: int
    after: int
    zeros: bool
    """What follows the last event is nothing but zero bytes."""
    keys: tuple[str, ...] | None
    """The keys behind the list that were read, where it is they that are cut; ``None``: the list itself is cut."""
    left: int = 0
    """How many bytes stand behind ``after``, blanks and commas aside."""


@dataclass(frozen=True, kw_only=True)
class Trailing:
    """Bytes behind the end of the document, and what they are."""

    byte: int
    count: int
    what: str


@dataclass(kw_only=True)
class Noticed:
    """What has been noticed so far; offsets are bytes from the start of the text."""

    damage: Damage | None = None
    encoding: str = "utf-8"
    packed: bool = False
    skipped: list[int] = field(default_factory=list)
    """Events that could not be read."""
    repaired: list[int] = field(default_factory=list)
    """Text that was read although it is not valid JSON."""
    strangers: list[int] = field(default_factory=list)
    """Entries of the list that are no objects."""
    deep: list[int] = field(default_factory=list)
    """Events of which values nested too deeply were left out."""
    unread_keys: bool = False
    """What stands beside the list of events is not valid JSON."""
    ending: Ending | None = None
    trailing: Trailing | None = None

    @classmethod
    def of(cls, text: Text) -> Noticed:
        """What unpacking noticed."""
        return cls(damage=text.damage, encoding=text.encoding, packed=text.packed)

    def add(self, walk: Walk) -> None:
        """Add what a walk over damaged text noticed."""
        self.skipped += walk.skipped
        self.repaired += walk.repaired
        self.strangers += walk.strangers
        self.deep += walk.deep

    def ends_early(self, blob: Blob, *, after: int, keys: tuple[str, ...] | None = None) -> None:
        """The text ends before its document does; ``keys``: see :class:`Ending`."""
        rest = blob.read(after, _LOOK)
        zeros = bool(rest) and not rest.strip(b"\0, \t\r\n")
        left = len(rest.strip(b", \t\r\n"))
        self.ending = Ending(byte=blob.size, after=after, zeros=zeros, keys=keys, left=left)

    def trails(self, rest: bytes, *, at: int) -> None:
        """``rest`` stands at byte ``at``, behind the end of the document; blanks there mean nothing."""
        left = rest.lstrip(b" \t\r\n")
        if not left:
            return
        if not left.strip(b"\0"):
            what = "zero bytes"
        elif left[:1] in (b"{", b"["):
            what = "another document: each needs a file of its own"
        else:
            what = "no part of it"
        self.trailing = Trailing(byte=at + len(rest) - len(left), count=len(left), what=what)

    def nothing_read(self, source: str) -> TraceError:
        """The error for a text without a single event."""
        of, hint = self._of, "Was the disk full, or the process killed while it wrote?"
        if self.damage is not None and self.damage.reason in ("cut", "damaged"):
            said = self.damage.said()
            said = said[:1].lower() + said[1:]
            return TraceError(
                f"{source} cannot be read: {said}, before its first whole event.", hint=hint, offset=self.damage.byte
            )
        if self.strangers:
            return TraceError(
                f"{source} holds no events: none of the {len(self.strangers)} entries of its list is an object, "
                f"the first, at byte {self.strangers[0]}{of}, included.",
                hint="Give a file written by torch.profiler (export_chrome_trace) or Kineto.",
                offset=self.strangers[0],
            )
        if self.skipped:
            return TraceError(
                f"{source} holds no event that can be read: the first of them begins at byte {self.skipped[0]}{of}.",
                hint="Is it JSON? Copy the file once more from where it was written.",
                offset=self.skipped[0],
            )
        if self.ending is not None:
            byte = self.ending.byte
            return TraceError(
                f"{source} ends before its first whole event, at byte {byte}{of}.", hint=hint, offset=byte
            )
        return TraceError(f"{source} holds no events.", hint="Was the profiler's schedule active while it recorded?")

    @property
    def _of(self) -> str:
        """Of what a byte is one, where the file is packed."""
        return " of the unpacked text" if self.packed else ""

    def findings(self, events: int) -> list[Finding]:
        """What should be known about a text of which ``events`` events were read."""
        found = [*self._broken(events), *self._around()]
        if self.encoding != "utf-8":
            found.append(_finding("repaired", "info", f"The text is {self.encoding}, not UTF-8: it was converted."))
        for code, places, said in (
            (
                "repaired",
                self.repaired,
                "The text is no valid JSON in {n} places, the first at byte {at}: read anyway.",
            ),
            ("skipped-events", self.skipped, "{n} events could not be read, the first at byte {at}: left out."),
            (
                "skipped-events",
                self.strangers,
                "{n} entries of the list are no objects, the first at byte {at}: left out.",
            ),
            (
                "too-deep",
                self.deep,
                "{n} events hold values nested too deeply, the first at byte {at}: read without them.",
            ),
        ):
            if places:
                message = said.format(n=len(places), at=f"{places[0]}{self._of}")
                found.append(_finding(code, "warning", message, places=len(places), byte=places[0]))
        return found

    def _broken(self, events: int) -> list[Finding]:
        """That the text ends early, or was not unpacked as it was packed."""
        damage, ending = self.damage, self.ending
        evidence: dict[str, Scalar] = {"events": events}
        if ending is not None:
            evidence |= {"byte": ending.byte, "last_event_end": ending.after}
        if damage is not None:
            evidence |= {"file_byte": damage.byte, "reason": damage.reason}
        if damage is None or damage.reason == "trailing":
            return [] if ending is None else [self._cut(ending, events, evidence)]
        if damage.reason in ("checksum", "unchecked"):
            vouch = (
                "some of its text is not what was recorded"
                if damage.reason == "checksum"
                else "nothing vouches for its text"
            )
            broken = [_finding("bad-checksum", "warning", f"{damage.said()}: {vouch}.", hint=_AGAIN, **evidence)]
            return broken + ([] if ending is None else [self._cut(ending, events, evidence)])
        whole = "its trace is whole all the same" if ending is None else f"the {events} events before it were read"
        if ending is not None:
            whole += f", up to byte {ending.after}{self._of}"
            if ending.keys is not None:
                whole = f"all {events} events were read, {self._of_keys(ending)}"
        code = "truncated" if damage.reason == "cut" else "damaged"
        return [_finding(code, "warning", f"{damage.said()}: {whole}.", hint=_AGAIN, **evidence)]

    def _cut(self, ending: Ending, events: int, evidence: dict[str, Scalar]) -> Finding:
        of = self._of
        message = f"The file ends in the middle, at byte {ending.byte}{of}: "
        if ending.keys is not None:
            message += f"all {events} events were read, {self._of_keys(ending)}."
        elif ending.zeros:
            message += f"from byte {ending.after} on it holds zeros, the {events} events before were read."
        else:
            message += f"the {events} events before byte {ending.after} were read."
        hint = "Was the disk full, or the process killed while it wrote? Totals are those of the part that is there."
        return _finding("truncated", "warning", message, hint=hint, **evidence)

    def _of_keys(self, ending: Ending) -> str:
        """What was read of the keys behind the list, and what was not."""
        read = f"and behind them {', '.join(ending.keys)}; " if ending.keys else ""
        if not ending.left:
            return f"{read}the closing brace and any key before it are missing"
        return f"{read}what stands from byte {ending.after}{self._of} on was not"

    def _around(self) -> list[Finding]:
        """What stands beside and behind the list."""
        found = []
        if self.unread_keys:
            message = "What stands beside the list of events is no valid JSON: it was read in part or not at all."
            found.append(_finding("unread-keys", "warning", message, hint="Device properties may be missing."))
        if self.trailing is not None:
            byte, count = self.trailing.byte, self.trailing.count
            message = f"{count} bytes behind the end of the trace, from byte {byte}{self._of} on, were left out: "
            found.append(
                _finding("trailing-bytes", "warning", f"{message}{self.trailing.what}.", byte=byte, bytes=count)
            )
        if self.damage is not None and self.damage.reason == "trailing":
            message = f"{self.damage.said()}: they were left out."
            found.append(_finding("trailing-bytes", "warning", message, byte=self.damage.byte))
        return found


_AGAIN = "Copy the file once more from where it was written; totals are those of the part that is there."


def _finding(code: str, severity: Severity, message: str, *, hint: str = "", **evidence: Scalar) -> Finding:
    return Finding(code=code, severity=severity, message=message, evidence=evidence, hint=hint)
