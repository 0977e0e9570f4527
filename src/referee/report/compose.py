"""Which document shows this record? One pure function per kind of record, and the one that picks it."""

from __future__ import annotations

from functools import singledispatch

from referee.records.anatomy import Anatomy, AnatomySurvey
from referee.records.capture import Capture
from referee.records.check import Check
from referee.records.compare import Comparison
from referee.records.diff import TraceDiff
from referee.records.document import Document
from referee.records.environment import Environment
from referee.records.lab import LabReport
from referee.records.measurement import Measurement, Sweep
from referee.records.precision import PrecisionReport
from referee.records.profile import Profile
from referee.records.remedy import RemedyReport
from referee.records.schema import Record
from referee.records.shapes import ShapeSet
from referee.records.sweep_grid import SweepGrid
from referee.records.trace_report import TraceReport, TraceSet
from referee.records.verify import Verification
from referee.records.whatif import WhatIf
from referee.report.anatomy import compose_anatomy
from referee.report.capture import compose_capture
from referee.report.check import compose_check
from referee.report.compare import compose_comparison
from referee.report.diff import compose_diff
from referee.report.environment import compose_environment
from referee.report.lab import compose_lab
from referee.report.measurement import compose_measurement
from referee.report.precision import compose_precision
from referee.report.profile import compose_profile
from referee.report.remedy import compose_remedy
from referee.report.shape_set import compose_shape_set
from referee.report.survey import compose_survey
from referee.report.sweep import compose_sweep
from referee.report.sweep_grid import compose_sweep_grid
from referee.report.trace import compose_trace
from referee.report.trace_set import compose_trace_set
from referee.report.verify import compose_verification
from referee.report.whatif import compose_whatif

__all__ = [
    "compose",
    "compose_anatomy",
    "compose_capture",
    "compose_check",
    "compose_comparison",
    "compose_diff",
    "compose_environment",
    "compose_lab",
    "compose_measurement",
    "compose_precision",
    "compose_profile",
    "compose_remedy",
    "compose_shape_set",
    "compose_sweep",
    "compose_sweep_grid",
    "compose_trace",
    "compose_trace_set",
    "compose_verification",
    "compose_whatif",
]


@singledispatch
def compose(record: Record) -> Document:
    """The document that shows ``record``."""
    raise TypeError(f"{type(record).__name__} is not a record that can be shown")


compose.register(Measurement, compose_measurement)
compose.register(Sweep, compose_sweep)
compose.register(SweepGrid, compose_sweep_grid)
compose.register(TraceReport, compose_trace)
compose.register(TraceSet, compose_trace_set)
compose.register(Capture, compose_capture)
compose.register(Profile, compose_profile)
compose.register(Profile, compose_profile)
compose.register(PrecisionReport, compose_precision)
compose.register(WhatIf, compose_whatif)
compose.register(RemedyReport, compose_remedy)
compose.register(Comparison, compose_comparison)
compose.register(Verification, compose_verification)
compose.register(ShapeSet, compose_shape_set)
compose.register(Check, compose_check)
compose.register(TraceDiff, compose_diff)
compose.register(Environment, compose_environment)
compose.register(Anatomy, compose_anatomy)
compose.register(AnatomySurvey, compose_survey)
compose.register(LabReport, compose_lab)
