"""Random hand-made traces: a host that issues work, devices that run it, and rows that fit no story at all."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from referee.trace.builder import TraceBuilder
from referee.trace.columns import Trace

US = 1_000


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row as it will be handed to the builder; times in nanoseconds."""

    kind: str
    start: int
    dur: int
    name: str = ""
    correlation: int = -1
    stream: int = 7
    device: int = 0
    thread: int = 1


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The rows of a trace, so that the same trace can be built shifted, renamed or renumbered."""

    rows: tuple[Row, ...] = field(default=())

    def build(
        self,
        *,
        shift: int = 0,
        rename: dict[str, str] | None = None,
        streams: dict[int, int] | None = None,
        scale: int = 1,
    ) -> Trace:
        """The trace, perhaps with all times shifted, names replaced, streams renumbered."""
        builder = TraceBuilder()
        for row in self.rows:
            name = (rename or {}).get(row.name, row.name)
            start, dur = row.start * scale + shift, row.dur * scale
            stream = (streams or {}).get(row.stream, row.stream)
            if row.kind == "kernel":
                builder.kernel(name, start, dur, stream=stream, device=row.device, correlation=row.correlation)
            elif row.kind == "memcpy":
                builder.memcpy(start, dur, stream=stream, device=row.device, correlation=row.correlation)
            elif row.kind == "call":
                builder.launch(name, start, dur, correlation=row.correlation, thread=row.thread)
            elif row.kind == "op":
                builder.op(name, start, dur, thread=row.thread)
            elif row.kind == "loader":
                builder.loader(start, dur, thread=row.thread)
            elif row.kind == "step":
                builder.step(len(builder.build().rows), start, dur, thread=row.thread)
        return builder.build()


CALLS = (
    "cudaLaunchKernel",
    "cudaMemcpyAsync",
    "cudaStreamSynchronize",
    "cudaFree",
    "cudaMalloc",
    "cudaStreamWaitEvent",
    "cudaGraphLaunch",
    "cudaMemcpy",
    "hipModuleLoad",
)

_time = st.integers(0, 40_000) | st.integers(0, 40_000).map(lambda t: t // 1_000 * 1_000)
_dur = st.integers(0, 4_000) | st.sampled_from((0, 1_000, 5_000_000))


@st.composite
def wild_scenes(draw: st.DrawFn) -> Scene:
    """Rows at arbitrary times with arbitrary links: nothing need be plausible."""
    rows = []
    for _ in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from(("kernel", "kernel", "kernel", "memcpy", "call", "call", "op", "loader", "step")))
        name = {"call": draw(st.sampled_from(CALLS)), "op": "aten::add"}.get(kind, "k")
        rows.append(
            Row(
                kind=kind,
                start=draw(_time),
                dur=draw(_dur),
                name=name,
                correlation=draw(st.integers(-1, 8)),
                stream=draw(st.integers(0, 2)),
                device=draw(st.integers(0, 1)),
                thread=draw(st.integers(1, 2)),
            )
        )
    return Scene(rows=tuple(rows))


@st.composite
def plausible_scenes(draw: st.DrawFn) -> Scene:
    """A host thread that launches, waits, allocates, loads and pauses; streams that run their work in order."""
    rows: list[Row] = []
    now, free = 0, dict.fromkeys(range(3), 0)
    for number in range(1, draw(st.integers(2, 20)) + 1):
        action = draw(st.sampled_from(("launch",) * 6 + ("wait", "malloc", "load", "pause", "graph")))
        cost = draw(st.integers(2, 40)) * US
        if action in ("launch", "graph"):
            stream = draw(st.integers(0, 2))
            name = "cudaLaunchKernel" if action == "launch" else "cudaGraphLaunch"
            rows.append(Row(kind="op", start=now, dur=cost, name="aten::add"))
            rows.append(Row(kind="call", start=now + cost // 2, dur=cost // 2, name=name, correlation=number))
            start = max(now + cost, free[stream])
            for _ in range(1 if action == "launch" else draw(st.integers(2, 4))):
                start += draw(st.integers(0, 3)) * US
                dur = draw(st.integers(1, 300)) * US
                rows.append(Row(kind="kernel", start=start, dur=dur, name="k", correlation=number, stream=stream))
                start += dur
            free[stream] = start
        elif action == "wait":
            until = max(*free.values(), now + cost)
            rows.append(Row(kind="call", start=now, dur=until - now, name="cudaDeviceSynchronize"))
            cost = until - now
        elif action == "malloc":
            rows.append(Row(kind="call", start=now, dur=cost, name="cudaMalloc"))
        elif action == "load":
            cost *= 20
            rows.append(Row(kind="loader", start=now, dur=cost))
        else:
            cost *= 100
        now += cost + draw(st.integers(0, 10)) * US
    return Scene(rows=tuple(rows))
