"""The ladder's structure: which stages there are for which operator and mode. Nothing here depends on time."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from referee.anatomy import probe as probe_module
from referee.anatomy.arguments import Wish, make_arguments
from referee.anatomy.dissect import dissect
from referee.anatomy.operator import find_operator
from referee.anatomy.prepare import Request, prepare
from referee.anatomy.probe import NoProbe, cache_dir, load_probe
from referee.anatomy.record import _known, unexplained
from referee.anatomy.stages import LAYERS, Rungs, build_ladder
from referee.anatomy.survey import survey
from referee.anatomy.timing import Timed
from referee.anatomy.variants import make_groups, time_groups
from referee.errors import CannotTell, OptionError
from referee.records.anatomy import Anatomy, Variant
from referee.records.schema import from_json, to_json
from referee.report.compose import compose
from referee.report.text import render_text

BUDGET_NS = 1_000_000


def dissected(name: str, cpu: Any, **options: Any) -> Anatomy:
    return dissect(name, device=cpu, budget_ns=BUDGET_NS, cold=False, **options)


def names(anatomy: Anatomy) -> list[str]:
    return [stage.name for stage in anatomy.stages]


@pytest.mark.parametrize(
    ("typed", "way", "rest", "known"),
    [
        (False, "method", -100.0, True),
        (False, "method", 100.0, False),
        (True, "method", -100.0, False),
        (False, "overload", -100.0, False),
    ],
)
def test_boxes_that_the_probe_packs_are_named_where_the_stages_add_up_to_more(
    typed: bool, way: str, rest: float, known: bool
) -> None:
    subject: Any = SimpleNamespace(entry=SimpleNamespace(way=way, in_python=False, function="f"))
    why, mend = _known(subject, rest, {"kind": "compiled", "typed": typed})
    assert ("boxes" in why, "--way overload" in mend) == (known, known)


@pytest.mark.usefixtures("probe")
def test_the_seven_layers_of_an_add(cpu: Any) -> None:
    found = dissect("aten.add.Tensor", device=cpu, budget_ns=BUDGET_NS)
    assert found.entry == "torch.add(a, b)"
    assert {stage.layer for stage in found.stages} | {"overload resolution and type promotion"} == set(LAYERS)
    assert "autograd node" in names(found)
    assert [entry.key for entry in found.dispatch_path if entry.visited] == ["AutogradCPU", "CPU"]
    assert found.whole_ns is not None
    assert found.remainder_ns == pytest.approx(found.whole_ns - sum(stage.ns for stage in found.stages))
    assert all(stage.cold_ns is not None for stage in found.stages)
    assert found.tape is not None
    assert [node.name for node in found.tape.nodes][:1] == ["AddBackward0"]


def test_a_remainder_whose_reason_is_known_says_it() -> None:
    (unknown,) = unexplained(1_000.0, 400.0, 390.0, 410.0)
    assert "so they do not say" in unknown.message
    (known,) = unexplained(1_000.0, 400.0, 390.0, 410.0, known=("a.split is written in Python", "Take --way overload."))
    assert known.message.endswith("because a.split is written in Python")
    assert known.hint == "Take --way overload."


@pytest.mark.usefixtures("probe")
def test_an_operator_that_hands_its_argument_back_has_no_node(cpu: Any) -> None:
    found = dissected("aten.contiguous", cpu, way="overload")
    assert "autograd node" not in names(found)
    assert any("hands its argument back" in text for text in found.unseparated)


@pytest.mark.usefixtures("probe")
def test_a_method_in_python_is_why_much_is_left(cpu: Any) -> None:
    found = dissected("aten.split.Tensor", cpu)
    large = [finding for finding in found.findings if finding.code == "remainder-large"]
    assert all("a.split is written in Python" in finding.message for finding in large)
    assert any("what a.split does in front" in text for text in found.unseparated)


@pytest.mark.usefixtures("probe")
def test_a_function_in_python_is_timed_as_people_write_it(cpu: Any) -> None:
    """``torch.einsum`` is no built-in function: what it does before the operator is a part of every call."""
    found = dissected("aten.einsum", cpu)
    assert found.entry.startswith("torch.einsum(")
    assert any("what torch.einsum does in front" in text for text in found.unseparated)
    large = [finding for finding in found.findings if finding.code == "remainder-large"]
    assert all("torch.einsum is written in Python" in finding.message for finding in large)


@pytest.mark.usefixtures("probe")
def test_what_cannot_be_told_apart_is_said(cpu: Any) -> None:
    view = dissected("aten.view", cpu)
    assert "output allocation" not in names(view)
    assert any(text.startswith("output allocation: its output is a view") for text in view.unseparated)
    composite = dissected("aten.linear", cpu)
    assert composite.calls
    assert "calls inside" in names(composite)
    in_place = dissected("aten.mul_.Tensor", cpu)
    assert any("lengthen the graph" in text for text in in_place.unseparated)
    assert "dispatch: ADInplaceOrView" in names(in_place)


@pytest.mark.usefixtures("probe")
@pytest.mark.parametrize(
    "name", ["aten.item", "aten.view", "aten.zeros", "aten.select.int", "aten.argmax", "aten.exp_"]
)
def test_parts_and_remainder_give_the_whole_however_the_function_is_bound(name: str, cpu: Any) -> None:
    """Results that are numbers, methods without a parser, symbolic sizes, optional integers: none goes another way."""
    found = dissect(name, device=cpu, budget_ns=80_000_000, cold=False)
    assert found.whole_ns is not None
    assert found.remainder_ns is not None
    assert abs(found.remainder_ns) < max(0.12 * found.whole_ns, 30)
    assert found.probe is not None
    assert found.probe["typed"]


@pytest.mark.usefixtures("probe")
def test_a_method_without_arguments_parses_none(cpu: Any) -> None:
    found = dissected("aten.item", cpu, mode="no_grad")
    assert "argument parsing" not in names(found)
    assert any("without arguments" in text for text in found.unseparated)


@pytest.mark.parametrize(
    ("rest", "low", "high", "said"),
    [(-40, -60, -20, False), (150, 90, 210, False), (150, 120, 180, True), (-3_000, -3_100, -2_900, True)],
)
def test_a_remainder_that_is_surely_large_is_said(rest: float, low: float, high: float, said: bool) -> None:
    findings = unexplained(1_000, rest, low, high)
    assert [finding.code for finding in findings] == ["remainder-large"] * said
    if said:
        assert ("less" if rest > 0 else "more") in findings[0].message


def test_an_operator_whose_every_call_finds_another_shape_is_not_taken_apart(cpu: Any) -> None:
    with pytest.raises(CannotTell, match="no two calls are alike") as caught:
        dissected("aten.unsqueeze_", cpu)
    assert "aten.unsqueeze apart" in caught.value.hint


@pytest.mark.parametrize("name", ["aten.t_", "aten.squeeze_", "aten.transpose_"])
def test_one_whose_calls_come_back_to_the_same_shape_is(name: str, cpu: Any) -> None:
    assert dissected(name, cpu).whole_ns


def test_of_a_tiny_call_a_remainder_as_small_as_what_two_ladders_differ_by_is_not_said() -> None:
    assert not unexplained(110, 20, 19, 21)
    assert unexplained(110, 40, 38, 42)


@pytest.mark.parametrize(
    ("made", "given"),
    [
        ((torch.float32,), (torch.float32,)),
        ((torch.float32,), (torch.int64,)),
        ((torch.float32,), (torch.float32, torch.float32)),
        ((torch.float32,), (torch.int64, torch.int64)),
        ((torch.bool,), (torch.float32, torch.float32)),
        ((torch.float32,), (torch.bool, torch.float32, torch.float32)),
    ],
)
def test_the_set_up_builds_the_iterator_that_gives_this_output(
    made: tuple[torch.dtype], given: tuple[torch.dtype, ...], probe: Any
) -> None:
    inputs = [torch.ones(8, dtype=dtype) for dtype in given]
    call = probe.Call("aten::relu", "", (torch.ones(8),), {})
    call.set_outputs([torch.ones(8, dtype=made[0])])
    call.set_iterator(torch.ones(8, dtype=made[0]), inputs)
    assert probe.rung(call, "iterator", 0, False)() is None
    if len(given) == 2:
        with pytest.raises(RuntimeError, match="another kind of iterator"):
            call.set_iterator(torch.ones(8, dtype=torch.complex64), inputs)


def test_stages_before_the_kernel_do_not_hold_what_was_parsed(probe: Any) -> None:
    """Parsing is what it adds to a call that goes as far as the kernel; the stages below it parse nothing."""
    found = prepare(Request(operator=(clamp := find_operator("aten.clamp"))), make_arguments(clamp, Wish()), probe)
    steps = {step.pair.name: step.pair for step in build_ladder(found.subject, probe).steps}

    def parses(side: Timed) -> bool:
        try:
            side.names["rung"]("no tensor at all")
        except TypeError:
            return True
        return False

    rungs = {name: pair for name, pair in steps.items() if name not in ("look-up", "call")}
    sides = {name: (parses(pair.upper), parses(pair.lower)) for name, pair in rungs.items()}
    for name in ("interpreter lock", "output allocation", "set-up"):
        assert sides.pop(name) == (False, False)
    assert sides.pop("argument parsing") == (True, False)
    assert set(sides.values()) == {(True, True)}


@pytest.mark.usefixtures("probe")
def test_a_way_that_does_not_lead_there_is_refused(cpu: Any) -> None:
    with pytest.raises(OptionError, match="No method leads to aten::zeros"):
        dissected("aten.zeros", cpu, way="method")


@pytest.mark.usefixtures("probe")
def test_modes_change_the_path(cpu: Any) -> None:
    inference = dissected("aten.add.Tensor", cpu, mode="inference")
    assert [e.key for e in inference.dispatch_path if e.visited] == ["CPU"]
    assert "autograd node" not in names(inference)
    autocast = dissected("aten.mm", cpu, autocast=True)
    assert [e.key for e in autocast.dispatch_path if e.visited] == ["AutocastCPU", "AutogradCPU", "CPU"]
    assert "dispatch: autocast" in names(autocast)
    no_rule = dissected("aten.add.Tensor", cpu, autocast=True)
    assert [e.key for e in no_rule.dispatch_path if e.visited] == ["AutogradCPU", "CPU"]
    assert "dispatch: autocast" not in names(no_rule)
    assert any(text.startswith("autocast: it has no rule") for text in no_rule.unseparated)
    overload = dissected("aten.add.Tensor", cpu, way="overload")
    assert overload.entry == "torch.ops.aten.add.Tensor(a, b)"
    assert any("nothing is chosen" in text for text in overload.unseparated)


def test_autocast_where_torch_has_none_is_refused() -> None:
    with pytest.raises(OptionError, match="torch has no autocast on lazy"):
        dissect("aten.add.Tensor", device=SimpleNamespace(name="lazy"), autocast=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("autocast", [False, True])
def test_the_nodes_of_leaves_are_held_while_a_stage_is_timed(probe: Any, autocast: bool) -> None:
    operator, module = find_operator("aten.mm"), probe
    request = Request(operator=operator, autocast=autocast)
    ladder = build_ladder(prepare(request, make_arguments(operator), module).subject, module)
    node = next(step.pair for step in ladder.steps if step.pair.name == "autograd node")
    assert len(node.upper.names["accumulators"]) == 2
    assert node.lower.names["accumulators"] == []


@pytest.mark.parametrize(
    "name",
    [
        "aten.arange",
        "aten.linspace",
        "aten.eye",
        "aten.randint",
        "aten.add.out",
        "aten.view.dtype",
        "aten.nll_loss",
        "aten.grid_sampler",
        "aten.bernoulli",
        "aten._foreach_add.List",
        "aten.fft_rfft",
    ],
)
def test_common_operators_are_called_as_torch_calls_them_and_not_with_packed_arguments(name: str, probe: Any) -> None:
    operator = find_operator(name)
    arguments = make_arguments(operator)
    assert probe.Call(operator.name, operator.overload, arguments.args, dict(arguments.kwargs)).is_typed()


@pytest.mark.parametrize("way", ["function", "overload"])
def test_what_torchs_own_factories_call_is_called_below_autograd(way: Any, probe: Any) -> None:
    met: list[str] = []

    def at(key: str) -> Any:
        def made(size: Any, **_: Any) -> Any:
            met.append(key)
            return torch.empty(size)

        return made

    library = torch.library.Library("referee_tests", "FRAGMENT")
    options = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
    library.define(f"made_{way}(SymInt[] size, *, {options}) -> Tensor")
    for key in ("AutogradCPU", "BackendSelect"):
        library.impl(f"made_{way}", at(key), key)
    operator = find_operator(f"referee_tests::made_{way}")
    arguments = make_arguments(operator)
    subject = prepare(Request(operator=operator), arguments, probe).subject
    subject = replace(subject, entry=replace(subject.entry, way=way))
    met.clear()
    with torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutogradCPU):
        for depth in ("call", "wrap"):
            Rungs(probe, subject, arguments, context=nullcontext).at(depth).loop()(1)
    assert met == ["BackendSelect" if way == "function" else "AutogradCPU"] * 2


@pytest.mark.usefixtures("probe")
def test_an_operator_of_a_library_of_the_users(cpu: Any) -> None:
    library = torch.library.Library("referee_tests", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    found = dissected("referee_tests::twice", cpu, mode="no_grad")
    assert found.op == "referee_tests.twice.default"
    assert found.entry == "torch.ops.referee_tests.twice.default(a)"
    assert "argument parsing" in names(found)


@pytest.mark.usefixtures("probe")
def test_a_record_survives_its_file_and_is_shown(cpu: Any) -> None:
    found = dissected("aten.add.Tensor", cpu, paths=True)
    assert from_json(to_json(found)) == found
    text = render_text(compose(found), width=140, color=False)
    assert "autograd node" in text
    assert "add.Tensor@AutogradCPU" in text


def test_without_a_compiler_there_are_fewer_rows_and_it_says_so(cpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "")
    monkeypatch.setattr(probe_module, "_loaded", {})
    missing = load_probe()
    assert isinstance(missing, NoProbe)
    assert "no C++ compiler" in missing.why
    found = dissected("aten.add.Tensor", cpu)
    assert names(found) == ["look-up", "autograd node", "output allocation"]
    # Three rows of Python are far from the whole, which is said as well.
    assert [finding.code for finding in found.findings] == ["no-probe", "remainder-large"]
    assert "needs the compiled probe" in found.findings[1].message
    assert found.findings[1].hint == found.findings[0].hint
    assert found.probe is not None
    assert found.probe["kind"] == "python only"
    assert any("compiled probe" in text for text in found.unseparated)
    # A row of Python that includes the call of another operator is not called the largest layer.
    assert "largest layer" not in render_text(compose(found), width=100, color=False)


def test_a_cache_that_cannot_be_written_is_a_reason_before_anything_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    monkeypatch.setenv("REFEREE_CACHE", str(blocked / "below it"))
    monkeypatch.setattr(probe_module, "find_compiler", lambda: "/bin/true")
    monkeypatch.setattr(probe_module, "_loaded", {})
    said: list[str] = []
    found = load_probe(announce=said.append)
    assert isinstance(found, NoProbe)
    assert "cannot be written" in found.why
    assert "REFEREE_CACHE" in found.mend
    assert not said


def test_a_compiler_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "c++"
    broken.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo broken 1.0 && exit 0\necho 'x.cpp: error: no' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    monkeypatch.setenv("REFEREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(probe_module, "_loaded", {})
    missing = load_probe()
    assert isinstance(missing, NoProbe)
    assert "error: no" in missing.why
    assert not list(cache_dir().glob("*/*"))  # nothing half made is left behind


@pytest.mark.usefixtures("probe")
def test_a_survey_has_a_row_for_each(cpu: Any) -> None:
    chosen = [
        find_operator(name) for name in ("aten.relu", "aten._cufft_clear_plan_cache", "aten.cat", "aten.add_.Tensor")
    ]
    found = survey(cpu, operators=chosen)
    assert [row.op for row in found.rows] == [operator.dotted for operator in chosen]
    assert [bool(row.refused) for row in found.rows] == [False, True, False, False]
    assert all(row.stages >= 5 for row in found.rows if not row.refused)
    assert from_json(to_json(found)) == found
    assert "3 of 4 operators" in render_text(compose(found), width=100, color=False)


def test_each_group_of_ways_stands_under_its_name_on_a_narrow_page(cpu: Any) -> None:
    found = dissected("aten.neg", cpu, mode="no_grad")
    ways = [
        Variant(group=group, name=name, ns=900.0, extra_ns=extra, note="a note")
        for group in ("spelling", "mode")
        for name, extra in (("first", None), ("second", 100.0))
    ]
    text = render_text(compose(replace(found, variants=tuple(ways))), width=80, color=False)
    shown = text[text.index("Other ways") :]
    assert shown.index("Spelling") < shown.index("first") < shown.index("Mode")


def test_variants_are_held_against_the_first_of_their_group(cpu: Any) -> None:
    groups = make_groups(find_operator("aten.add.Tensor"))
    assert [group.name for group in groups] == ["spelling", "second operand", "layout, 64×64", "wrapper", "mode"]
    timed = time_groups(groups, device=cpu, budget_ns=1_000_000)
    assert [variant.name for variant in timed if variant.extra_ns is None] == [group.ways[0].name for group in groups]
    assert all(variant.ns is not None and variant.ns > 0 for variant in timed)
    assert make_groups(find_operator("aten.cat")) == ()
