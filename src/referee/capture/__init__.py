"""What does the profiler see? The schedule as a pure state machine, and the adapter to torch.profiler."""

from referee.capture.loop import Capture
from referee.capture.profiler import DEFAULT_PLAN, capture
from referee.capture.schedule import Plan

__all__ = ["DEFAULT_PLAN", "Capture", "Plan", "capture"]
