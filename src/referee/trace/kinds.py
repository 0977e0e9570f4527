"""What is a row, by its category and for a few frames by its name? Never by "has a stream".

Names of categories are compared in lower case: torch 1.8 wrote ``Operator``, ``Kernel``, ``Memcpy``, ``Memset`` and
``Runtime``, later ones write the names of Kineto's ``ActivityType``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from referee.trace.columns import BoolColumn, ByteColumn, CodeColumn, Kind

XLA_STREAM, XLA_OPS, XLA_STEPS, XLA_DERIVED = "xla stream", "xla ops", "xla steps", "xla derived"
"""Our own names for the lines that XLA's profiler draws for a device, which has no categories: its streams; on devices
without streams (TPU) its operations; its steps; and lines that are derived from these."""

KIND_OF_CATEGORY: dict[str, Kind] = {
    # the host
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "overhead": Kind.OVERHEAD,
    "trace": Kind.OTHER,
    "cpu_instant_event": Kind.OTHER,
    # calls
    "runtime": Kind.RUNTIME,
    "cuda_runtime": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "musa_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "cann": Kind.RUNTIME,
    "cuda_driver": Kind.DRIVER,
    "xpu_driver": Kind.DRIVER,
    "musa_driver": Kind.DRIVER,
    "privateuse1_driver": Kind.DRIVER,
    # work on a device
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "mtia_ccp_events": Kind.DEVICE_OTHER,
    "hpu_op": Kind.DEVICE_OTHER,
    "ascend hardware": Kind.KERNEL,
    # of these the whole collectives alone are work: see classify
    "hccl": Kind.OTHER,
    "communication": Kind.OTHER,
    # on a device, but no work
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.DEVICE_SYNC,
    "xpu_sync": Kind.DEVICE_SYNC,
    "mtia_sync": Kind.DEVICE_SYNC,
    "cuda_event": Kind.OTHER,
    "cuda_profiler_range": Kind.OTHER,
    "mtia_insight": Kind.OTHER,
    "mtia_counters": Kind.OTHER,
    "external_correlation": Kind.OTHER,
    "collective_comm": Kind.OTHER,
    # the host's side and summaries of Ascend's profiler
    "enqueue": Kind.OTHER,
    "dequeue": Kind.OTHER,
    "overlap analysis": Kind.OTHER,
    XLA_STREAM: Kind.KERNEL,
    XLA_OPS: Kind.KERNEL,
    XLA_STEPS: Kind.DEVICE_ANNOTATION,
    XLA_DERIVED: Kind.OTHER,
}
"""Category in lower case → kind. The names are those of Kineto's ``ActivityType``, torch 1.8 and other vendors."""

_STEP = re.compile(r"ProfilerStep\s?#\s?\d+")
_LOADER = re.compile(
    r"enumerate\((DataLoader|DataPipe)\)#|"
    r"\[pl\]\[profile\](?:\[\w+\]\.)?(?:(?:train|val|sanity|test|predict)_(?:dataloader_)?next|get_train_batch)$"
)
"""The frame that torch's loaders put around each batch, and Lightning's around whatever it takes batches from."""
_LAUNCH = re.compile(
    r"(?:cuda|cu|hip|musa|mu|ze|ur|pi)[A-Z]\w*?(?:LaunchKernel|LaunchCooperativeKernel|GraphLaunch|KernelLaunch)|"
    r"(?:cuda|cu|hip)(?:LaunchKernel|LaunchCooperativeKernel|GraphLaunch)"
)
ASCEND = "ascend hardware"
"""The process of the streams of Ascend's devices, whose name its rows have for a category."""
_ASCEND_SYNC = re.compile(r"(?i)(?:EVENT|NOTIFY|CAPTURE|MEM)_(?:RECORD|WAIT|RESET)")
_MTIA, _MTIA_SYNC = "mtia_ccp_events", re.compile(r"event_(?:wait|record)$")
"""The tasks of MTIA's control processors: streams that wait for an event, or record one, are at no work meanwhile."""
_ASCEND_COPY = re.compile(r"(?i)(?:MEMCPY|SDMA)")
"""Ascend's profiler writes the tasks of a stream under one process: kernels by their own names, the rest by these."""
_XLA_COPY, _XLA_FILL = re.compile(r"(?i)memcpy"), re.compile(r"(?i)memset")
_ASCEND_LINKS = ("hccl", "communication")
"""The process of collectives, by its older and its newer name: a thread for each group with the collectives themselves,
and threads for its planes with the tasks they consist of (msprof, ``analysis/viewer/get_hccl_export_data.py``)."""
_ASCEND_COLLECTIVE = re.compile(r"(?i)hcom_")
_GRAPH_LAUNCH = re.compile(r"\w*GraphLaunch")


def classify(category: CodeColumn, name: CodeColumn, *, categories: Sequence[str], names: Sequence[str]) -> ByteColumn:
    """The :class:`~referee.trace.columns.Kind` of every row; ``category`` and ``name`` are codes into the two lists."""
    table = np.array(
        [KIND_OF_CATEGORY.get(text.lower(), Kind.UNKNOWN) for text in categories] or [Kind.UNKNOWN], np.uint8
    )
    kind = table[category]
    framed = (kind == Kind.OPERATOR) | (kind == Kind.ANNOTATION)
    kind[framed & name_flags(names, _STEP)[name]] = Kind.STEP
    kind[framed & name_flags(names, _LOADER)[name]] = Kind.LOADER
    if _MTIA in (lower := [text.lower() for text in categories]):
        task = np.array([text == _MTIA for text in lower])[category]
        kind[task & name_flags(names, _MTIA_SYNC)[name]] = Kind.DEVICE_SYNC
    if XLA_STREAM in lower:
        task = np.array([text == XLA_STREAM for text in lower])[category]
        kind[task & name_flags(names, _XLA_COPY)[name]] = Kind.MEMCPY
        kind[task & name_flags(names, _XLA_FILL)[name]] = Kind.MEMSET
    _tell_ascend_apart(kind, category, name, categories=lower, names=names)
    return kind


def _tell_ascend_apart(
    kind: ByteColumn, category: CodeColumn, name: CodeColumn, *, categories: Sequence[str], names: Sequence[str]
) -> None:
    """Tell the tasks of Ascend's streams apart, and take its collectives where no stream holds them already."""
    if ASCEND not in categories and not any(text in _ASCEND_LINKS for text in categories):
        return
    task = np.array([text == ASCEND for text in categories])[category]
    kind[task & name_flags(names, _ASCEND_SYNC)[name]] = Kind.DEVICE_SYNC
    kind[task & name_flags(names, _ASCEND_COPY)[name]] = Kind.MEMCPY
    on_streams = np.zeros(len(names), np.bool_)
    on_streams[name[task]] = True
    link = np.array([text in _ASCEND_LINKS for text in categories])[category]
    kind[link & (name_flags(names, _ASCEND_COLLECTIVE) & ~on_streams)[name]] = Kind.KERNEL


def name_flags(names: Sequence[str], pattern: re.Pattern[str]) -> BoolColumn:
    """Which names begin with ``pattern``? One flag per name, to be indexed with name codes."""
    return np.fromiter((pattern.match(text) is not None for text in names), np.bool_, len(names))


def launch_names(names: Sequence[str]) -> BoolColumn:
    """Which names are of a kernel- or graph-launch family (``cudaLaunchKernelExC``, ``hipGraphLaunch`` …)?"""
    return name_flags(names, _LAUNCH)


def graph_launch_names(names: Sequence[str]) -> BoolColumn:
    """Which names are graph launches?"""
    return name_flags(names, _GRAPH_LAUNCH)


def unknown_categories(categories: Sequence[str]) -> tuple[str, ...]:
    """The categories that are not known, as written."""
    return tuple(text for text in categories if text.lower() not in KIND_OF_CATEGORY)


def names_beginning(names: Sequence[str], prefix: str) -> BoolColumn:
    """Which names begin with ``prefix``? One flag per name, to be indexed with name codes."""
    return np.fromiter((text.startswith(prefix) for text in names), np.bool_, len(names))
