"""What is to be measured? ``FILE.py:NAME``, ``package.module:NAME`` or a statement becomes a zero-argument step."""

from referee.target.build import Target, call_step, check_step, load_statement, load_target, require_output
from referee.target.errors import explain_error, step_errors

__all__ = [
    "Target",
    "call_step",
    "check_step",
    "explain_error",
    "load_statement",
    "load_target",
    "require_output",
    "step_errors",
]
