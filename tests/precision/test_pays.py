"""From which batch size a precision pays, from the answers at each."""

from __future__ import annotations

import pytest

from referee.precision.pays import Point, find_pays_from, hopeful, not_tried
from referee.records.compare import Pair

pytest.importorskip("torch")

from referee.precision.control import BF16, FLOAT32, FP16

from .test_verdict import row


def pair(answer: str, ratio: float | None, high: float | None = None) -> Pair:
    return Pair(
        name="bfloat16",
        ratio=ratio,
        ci_low=ratio,
        ci_high=high if high is not None else ratio,
        answer=answer,  # type: ignore[arg-type]
        why="few quads",
        quads=10,
        clean_quads=10,
        n_eff=10.0,
        floor_frac=0.01,
        ratios=(),
    )


@pytest.mark.parametrize(
    ("answers", "size"),
    [
        ([pair("slower", 1.3), pair("faster", 0.9), pair("faster", 0.5)], 8),
        ([pair("faster", 0.9), pair("faster", 0.9), pair("faster", 0.5)], 1),
        ([pair("faster", 0.9), pair("slower", 1.2), pair("faster", 0.5)], 64),
        ([pair("faster", 0.9), pair("faster", 0.9), pair("same", 1.0)], None),
        ([pair("slower", 1.3), pair("faster", 0.7), pair("cannot-tell", 0.5, 0.6)], 8),
        ([pair("slower", 1.3), pair("faster", 0.7), pair("cannot-tell", 0.9, 1.1)], None),
        ([pair("slower", 1.3), pair("slower", 1.1), pair("cannot-tell", None)], None),
        ([], None),
    ],
)
def test_the_smallest_size_that_no_larger_one_contradicts(answers: list[Pair], size: int | None) -> None:
    points = [Point(batch_size=b, pairs=(p,)) for b, p in zip((1, 8, 64), answers, strict=False)]
    (found,) = find_pays_from(points, ["bfloat16"])
    assert found.batch_size == size
    assert bool(found.why_not) is (size is None)
    assert [point[0] for point in found.points] == [p.batch_size for p in points]


def test_what_is_hopelessly_slow_is_left_out() -> None:
    rows = (row("float32"), row("bfloat16", "slower", 1.4), row("float16", "slower", 12.0))
    assert hopeful((FLOAT32, BF16, FP16), rows) == (FLOAT32, BF16)
    assert "12 times" in not_tried("float16", 12.0).why_not
