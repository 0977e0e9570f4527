"""Which keys are held against each other, and which may be ignored?"""

from __future__ import annotations

import pytest

from referee.errors import OptionError
from referee.records.provenance import Provenance, check_keys, differences


def of(statistic: str) -> Provenance:
    method = {"clock": "settled_amortised", "statistic": statistic}
    return Provenance(dtype="float32", shapes=(), chip={}, method=method, software={}, switches={})


def test_blocks_of_other_lengths_are_the_same_statistic() -> None:
    median = "median of clean blocks"
    assert differences(of(f"{median}, each the mean of 4 calls"), of(f"{median}, each the mean of 6 calls")) == ()
    assert differences(of(median), of(f"{median}, each the mean of 6 calls")) == ()
    assert [d.path for d in differences(of(median), of("minimum of blocks"))] == ["method.statistic"]


def test_known_keys_may_be_ignored_and_others_not() -> None:
    check_keys(["dtype", "shapes", "switches.compile", "software.git_commit"])
    with pytest.raises(OptionError, match=r"Did you mean chip\.threads"):
        check_keys(["switches.threads"])
