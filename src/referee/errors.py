"""What went wrong, whose mistake was it, and what mends it?

The tree; the number is the exit status a command ends with::

    RefereeError
    ├── UserError                        2   the request cannot be carried out as written
    │   ├── OptionError (ValueError)         an option's value makes no sense
    │   ├── TargetError (ValueError)         FILE.py:NAME cannot be found, loaded, or measured
    │   │   └── StepError (RuntimeError)     the step raised, returned nothing usable, or never returned
    │   ├── TraceError (ValueError)          a file is not a trace that can be read
    │   ├── SchemaError (ValueError)         a saved result is of another kind or a newer version
    │   └── ProvenanceError (ValueError)     a number was to be recorded without what is needed to believe it
    ├── EnvironmentLacks (RuntimeError)  3   the machine lacks something that is named
    │   ├── DeviceMissing                    no such device here
    │   └── PackageMissing (ImportError)     an optional package is not installed
    └── CannotTell                       4   measured, but the answer is not in the evidence

Every message is one sentence that names the thing and the place; ``hint`` is the mend. The command line maps the
tree to exit statuses in one place (``referee.cli.main``).
"""

from __future__ import annotations


class RefereeError(Exception):
    """Base of every error that Referee raises on purpose. ``message`` is one sentence; ``hint`` is the mend."""

    exit_status = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class UserError(RefereeError):
    """The request cannot be carried out as written."""

    exit_status = 2


class OptionError(UserError, ValueError):
    """An option's value makes no sense."""


class TargetError(UserError, ValueError):
    """``FILE.py:NAME`` or ``package.module:NAME`` cannot be found, loaded or measured."""


class StepError(TargetError, RuntimeError):
    """The step raised, returned nothing that can be settled, or never returned."""


class TraceError(UserError, ValueError):
    """A file is not a trace that can be read. ``offset`` is the byte where reading ended, if that is known."""

    def __init__(self, message: str, *, hint: str = "", offset: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset


class SchemaError(UserError, ValueError):
    """A saved result is of another kind, or of a version newer than this Referee reads."""


class ProvenanceError(UserError, ValueError):
    """A number was to be recorded without what is needed to believe it."""


class EnvironmentLacks(RefereeError, RuntimeError):
    """The machine lacks something that is named."""

    exit_status = 3


class DeviceMissing(EnvironmentLacks):
    """No such device here."""


class PackageMissing(EnvironmentLacks, ImportError):
    """An optional package is not installed."""

    @classmethod
    def named(cls, package: str, *, need: str, extra: str) -> PackageMissing:
        """The error for ``package``, which ``need`` (a phrase) needs, and which the extra ``extra`` brings."""
        message = f"{need} needs the package {package}, which is not installed."
        return cls(message, hint=f"Install it with: pip install 'referee[{extra}]'")


class CannotTell(RefereeError):
    """Measured, but the answer is not in the evidence."""

    exit_status = 4
