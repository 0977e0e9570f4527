"""Text → integer nanoseconds, against exact decimals."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.trace.numbers import exact_ns, parse_ns

PLAIN = st.from_regex(r"(0|[1-9][0-9]{0,17})(\.[0-9]{1,8})?", fullmatch=True)
SCIENTIFIC = st.from_regex(r"-?[0-9]{1,5}(\.[0-9]{1,4})?[eE][+-]?[0-9]{1,2}", fullmatch=True)
QUOTED = PLAIN.map(lambda text: f'"{text}"')


def truth(text: str) -> int:
    return int((Decimal(text.strip('"')) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


@given(st.lists(st.one_of(PLAIN, QUOTED, PLAIN.map(lambda t: "-" + t), SCIENTIFIC), max_size=20))
def test_equals_the_exact_decimal(texts):
    values, unusual = parse_ns([text.encode() for text in texts])
    exact = [unusual.get(index, int(value)) for index, value in enumerate(values)]
    with localcontext(Context(prec=300)):
        for text, found in zip(texts, exact, strict=True):
            if found is None:
                assert abs(Decimal(text.strip('"'))) >= Decimal(10) ** 40
            else:
                assert found == truth(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1661938466838036", 1661938466838036000),
        ("1727743122000000.123", 1727743122000000123),
        ("0.0005", 0),
        ("0.0015", 2),
        ("0.0025", 2),
        ("0.00250000000000001", 3),
        ("1e3", 1000000),
        ("9223372036854775807", 9223372036854775807000),
        ("18446744073709551616.5", 18446744073709551616500),
    ],
)
def test_known_values(text, ns):
    values, unusual = parse_ns([text.encode(), f'"{text}"'.encode()])
    assert [unusual.get(index, int(value)) for index, value in enumerate(values)] == [ns, ns]
    assert exact_ns(text.encode()) == ns


@pytest.mark.parametrize("text", ["", "null", '"soon"', "NaN", "-Infinity", "1e999999999", "[1]", "\xff", "1 2"])
def test_no_number(text):
    assert parse_ns([text.encode("latin-1")]) == (pytest.approx([0]), {0: None})


def test_nothing():
    values, unusual = parse_ns([])
    assert len(values) == 0
    assert unusual == {}


def test_token_with_a_line_break_does_not_shift_the_others():
    values, unusual = parse_ns([b"1", b"[1,\n2]", b"3"])
    assert values.tolist() == [1000, 0, 3000]
    assert unusual == {1: None}
