"""Targets: what is called with what, what counts as the step, and one sentence for each mistake."""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from referee.errors import OptionError, StepError, TargetError
from referee.target import check_step, load_statement, load_target, step_errors
from referee.target.params import convert


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a file and give its path as text."""

    def write(text: str, name: str = "steps.py") -> str:
        path = tmp_path / name
        path.write_text(dedent(text))
        return str(path)

    return write


FACTORY = """
    def make(batch_size=4, width: int = 8, flag: bool = False):
        def step():
            return [batch_size, width, flag]
        step.model, step.optimizer = "model", "optimizer"
        return step
"""


def test_a_factory_is_called_with_what_it_declares(write: Any) -> None:
    target = load_target(f"{write(FACTORY)}:make", batch_size=16, device="cpu", params={"width": "32", "flag": "yes"})
    assert target.step() == [16, 32, True]
    assert target.factory
    assert target.declared == ("batch_size", "width", "flag")
    assert target.values == {"batch_size": 16, "width": 32, "flag": True}
    assert (target.batch_size, target.model, target.optimizer) == (16, "model", "optimizer")
    assert target.first_call_ns is None
    assert target.source_file is not None
    assert target.source_file.endswith("steps.py")


def test_rebuilding_changes_what_is_named_and_keeps_the_rest(write: Any) -> None:
    target = load_target(f"{write(FACTORY)}:make", batch_size=16, params={"width": "32"})
    assert target.rebuild(batch_size=2).step() == [2, 32, False]
    assert target.rebuild(flag="on").rebuild(width=1).step() == [16, 1, True]
    assert target.step() == [16, 32, False]
    with pytest.raises(TargetError, match="declares no parameter 'seq_len'"):
        target.rebuild(seq_len=3)


def test_a_step_that_is_no_factory_is_the_step_itself(write: Any) -> None:
    path = write("calls = []\ndef step(batch_size=4):\n    calls.append(batch_size)\n    return [batch_size]\n")
    target = load_target(f"{path}:step", batch_size=3)
    assert (target.factory, target.step()) == (False, [3])
    assert target.first_call_ns is not None
    assert target.first_call_ns > 0
    assert target.rebuild(batch_size=7).step() == [7]


def test_a_class_is_a_factory_and_carries_its_model(write: Any) -> None:
    path = write(
        """
        class Step:
            def __init__(self, batch_size: int):
                self.model = "net"
                self.batch_size = batch_size
            def __call__(self):
                return [self.batch_size]
            def again(self):
                return self()
        def bound():
            return Step(2).again
        """
    )
    target = load_target(f"{path}:Step", batch_size=5)
    assert (target.step(), target.model) == ([5], "net")
    assert load_target(f"{path}:bound").model == "net"


def test_neighbouring_files_can_be_imported_and_equal_names_do_not_meet(tmp_path: Path) -> None:
    for folder, value in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"helper_{folder}.py").write_text(f"value = {value}\n")
        (tmp_path / folder / "steps.py").write_text(
            f"from helper_{folder} import value\ndef step():\n    return [value]\n"
        )
    assert load_target(f"{tmp_path}/one/steps.py:step").step() == [1]
    assert load_target(f"{tmp_path}/two/steps.py:step").step() == [2]


def test_a_module_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_steps").mkdir()
    (tmp_path / "package_of_steps" / "inner.py").write_text(
        "class A:\n    @staticmethod\n    def step():\n        return [1]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    assert load_target("package_of_steps.inner:A.step").step() == [1]


MODEL = "import torch\nmodel = torch.nn.Linear(2, 2)\ndef build():\n    return model\n"


@pytest.mark.parametrize(
    ("text", "name", "message", "hint"),
    [
        (FACTORY, "mak", "defines no mak", "Did you mean make?"),
        (FACTORY, "zzz", "defines no zzz", "It defines make."),
        ("", "step", "defines no step", "nothing that can be called"),
        ("step = 3", "step", "step in .* is of type int and cannot be called", "Define a function step"),
        ("x = = 1", "step", r"steps.py:1 is not Python: invalid syntax", ""),
        ("\nraise ValueError('no data\\nat all')", "step", r"ValueError: no data \(at .*steps.py:2\)", ""),
        ("import nosuchmodule_", "step", "No module named 'nosuchmodule_'", "provides the module nosuchmodule_"),
        ("raise SystemExit(1)", "step", "ended the program while it was imported", "__main__"),
        ("def step(n):\n    return n", "step", "needs a value for 'n'", "--param n=VALUE"),
        ("def step(batch_size):\n    return n", "step", "needs a value for 'batch_size'", "--batch-size"),
        ("def step(n, /):\n    return n", "step", "needs the argument 'n', which cannot be given by name", "slash"),
        ("def step():\n    return (lambda x: x)", "step", "needs the argument 'x'", "lambda: model"),
        (MODEL, "model", "is a Linear, whose forward needs the argument 'input'", "def step()"),
        (MODEL, "build", "returned a Linear that needs the argument 'input'", "lambda: model"),
        ("class Stop(BaseException): ...\ndef step():\n    raise Stop('now')", "step", "Stop: now at .*steps.py:3", ""),
    ],
)
def test_mistakes_get_one_sentence_and_the_mend(write: Any, text: str, name: str, message: str, hint: str) -> None:
    with pytest.raises(TargetError, match=message) as raised:
        load_target(f"{write(text)}:{name}")
    assert raised.value.exit_status == 2
    assert "\n" not in str(raised.value)
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("step", "does not say what to measure"),
        ("steps.py", "does not say what to measure"),
        ("missing.py:step", "missing.py does not exist"),
        ("no.such.module:step", "There is no module no.such.module"),
        (":step", "does not say what to measure"),
    ],
)
def test_specs_that_lead_nowhere(spec: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_target(spec)


def test_a_directory_and_a_close_name(write: Any, tmp_path: Path) -> None:
    write(FACTORY)
    with pytest.raises(TargetError, match="is a directory"):
        load_target(f"{tmp_path}:step")
    with pytest.raises(TargetError) as raised:
        load_target(f"{tmp_path}/step.py:make")
    assert "steps.py" in raised.value.hint


def test_a_package_in_the_working_directory_is_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "referee_test_package"
    package.mkdir()
    (package / "__init__.py").write_text(dedent(FACTORY))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_target("referee_test_package:make").step() == [4, 8, False]
    sys.modules.pop("referee_test_package")


@pytest.mark.parametrize("option", [{"batch_size": 3}, {"dtype": "float32"}, {"params": {"depth": "3"}}])
def test_what_is_not_declared_is_refused(write: Any, option: dict[str, Any]) -> None:
    with pytest.raises(TargetError, match="declares no parameter"):
        load_target(f"{write('def step(): return [1]')}:step", **option)


def test_an_undeclared_device_is_the_targets_own_business(write: Any) -> None:
    assert load_target(f"{write('def step(): return [1]')}:step", device="cuda:0").step() == [1]


def test_what_a_step_raises_names_its_line(write: Any) -> None:
    path = write("def make():\n    def step():\n        return {}['missing']\n    return step\n")
    target = load_target(f"{path}:make")
    with pytest.raises(StepError, match=r"raised KeyError: 'missing' at .*steps\.py:3") as raised:
        check_step(target)
    assert raised.value.exit_status == 2


def test_a_step_that_returns_nothing_is_refused_with_the_mend(write: Any) -> None:
    with pytest.raises(StepError, match="returns nothing") as raised:
        check_step(load_target(f"{write('def step(): pass')}:step"))
    assert raised.value.hint == "Let the step return the output (or the loss)."


@pytest.mark.parametrize("text", ["async def step(): return 1", "def step():\n    yield 1"])
def test_work_that_has_not_begun_is_refused(write: Any, text: str) -> None:
    with pytest.raises(StepError, match="whose work has not begun"):
        load_target(f"{write(text)}:step")


def test_errors_around_a_measurement(write: Any) -> None:
    path = write("def make():\n    return lambda: 1 / 0\n")
    target = load_target(f"{path}:make")
    with pytest.raises(StepError, match=r"ZeroDivisionError: division by zero at .*steps\.py:2"), step_errors("x"):
        target.step()
    with pytest.raises(OptionError), step_errors("x"):
        raise OptionError("ours")


# statements


def test_a_statement_returns_the_value_of_its_last_line() -> None:
    target = load_statement("y = x + 1\n[y]", "x = 2")
    assert (target.step(), target.statement, target.declared) == ([3], True, ())
    with pytest.raises(TargetError, match="no parameters"):
        target.rebuild(x=3)


def test_a_statement_may_return_nothing() -> None:
    assert check_step(load_statement("y = 1")) is None


@pytest.mark.parametrize(
    ("stmt", "setup", "message"),
    [
        ("", "", "--stmt is empty"),
        ("x +", "", r"--stmt is not Python \(line 1\)"),
        ("x", "y = (", "--setup is not Python"),
        ("1", "1 / 0", "--setup raised ZeroDivisionError: division by zero at <setup>:1"),
    ],
)
def test_statements_that_cannot_run(stmt: str, setup: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        load_statement(stmt, setup)


def test_a_statement_that_forgot_its_import_is_told() -> None:
    with pytest.raises(StepError) as raised:
        check_step(load_statement("torch.ones(3)"))
    assert "import torch" in raised.value.hint


# values


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    ("text", "annotation", "default", "value"),
    [
        ("3", int, None, 3),
        ("1_000", int, None, 1000),
        ("0x10", int, None, 16),
        ("2.5", float, None, 2.5),
        ("off", bool, None, False),
        ("3", str, None, "3"),
        ("3", Any, 1, 3),
        ("true", Any, False, True),
        ("3", Any, 1.0, 3.0),
        ("3", Any, None, 3),
        ("word", Any, None, "word"),
        ("3", int | None, None, 3),
        ("None", int | None, 5, None),
        ("none", "int | None", 5, None),
        ("None", str, None, "None"),
        ("word", int | str, None, "word"),
        ("4", str | int, None, 4),
        ("1,2,3", tuple[int, ...], None, (1, 2, 3)),
        ("[1, 2]", list[float], None, [1.0, 2.0]),
        ("a", Literal["a", "b"], None, "a"),
        ("2", Literal[1, 2], None, 2),
        ("RED", Colour, None, Colour.RED),
    ],
)
def test_values_follow_the_annotation_or_the_default(text: str, annotation: Any, default: Any, value: Any) -> None:
    found = convert("name", text, annotation=annotation, default=default)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "annotation", "message"),
    [
        ("four", int, "layers=four: layers is a whole number"),
        ("x", float, "layers is a number"),
        ("maybe", bool, "layers is true or false"),
        ("1,x", tuple[int, ...], "layers is a comma-separated list of whole numbers"),
        ("c", Literal["a", "b"], "'c' is not one of a, b"),
    ],
)
def test_values_that_do_not_fit(text: str, annotation: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        convert("layers", text, annotation=annotation, default=None)


@given(st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False), st.text(alphabet="abcxyz", min_size=1)))
def test_written_values_are_read_back(value: object) -> None:
    assert convert("name", str(value), annotation=type(value), default=None) == value


@pytest.mark.torch
def test_dtypes_and_devices_become_torchs_own(write: Any) -> None:
    torch = pytest.importorskip("torch")
    path = write(
        """
        from __future__ import annotations
        import torch
        def make(dtype: torch.dtype, device: torch.device = "cpu"):
            return lambda: [dtype, device]
        def words(dtype: str = "x", device="cpu"):
            return lambda: [dtype, device]
        """
    )
    assert load_target(f"{path}:make", dtype="bf16", device="cpu").step() == [torch.bfloat16, torch.device("cpu")]
    assert load_target(f"{path}:make").step()[0] == torch.float32
    assert load_target(f"{path}:words", dtype="bf16").step() == ["bf16", "cpu"]
    with pytest.raises(OptionError, match="'bfloat61' is not a dtype") as raised:
        load_target(f"{path}:make", dtype="bfloat61")
    assert "bfloat16" in raised.value.hint


def test_loading_a_target_loads_no_torch(write: Any) -> None:
    spec = write(FACTORY) + ":make"
    code = f"import sys; from referee.target import load_target; load_target({spec!r}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_step_whose_data_end_is_one_sentence_through_any_context(write: Any) -> None:
    """Contexts made of generators take a StopIteration, and what came of it, for their own end."""
    target = load_target(f"{write('it = iter([1])' + chr(10) + 'def step(): return next(it)')}:step")

    @contextmanager
    def stage() -> Iterator[None]:
        yield

    told = pytest.raises(StepError, match=r"raised StopIteration at .*steps\.py:2")
    with told as caught, stage(), step_errors(target.name), stage():
        target.step()
    assert "begin again when its data end" in caught.value.hint


AUTOGRAD = """
import torch
from torch.utils.checkpoint import checkpoint

w = torch.ones(4, requires_grad=True)
kept = {"h": torch.ones(4)}
calls = []

def carried():
    kept["h"] = kept["h"] * w
    kept["h"].sum().backward()

def cut():
    torch.tensor([(w * 2).argmax()]).float().sum().backward()

def several():
    (w * 2).backward()

def saved():
    h = (w * 2).sigmoid()
    h += 1
    h.sum().backward()

def leaf():
    w.clamp_(0, 1)

def parts():
    a, b = (w * 2).chunk(2)
    a += 1

def cached():
    if "table" not in kept:
        with torch.inference_mode():
            kept["table"] = torch.ones(4)
    (w * kept["table"]).sum()

def again():
    def part(x):
        calls.append(1)
        return (x * 2).sin() if len(calls) % 2 else x * 3
    checkpoint(part, w, use_reentrant=False).sum().backward()

def half():
    torch.nn.Linear(4, 4)(torch.ones(2, 4).half())

def filled():
    torch.ones(2).half().masked_fill(torch.tensor([True, False]), -1e9)

def unscaled():
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD([w], lr=0.1)
    for _ in range(2):
        scaler.scale((w * 2).sum()).backward()
        scaler.unscale_(optimizer)

def stepped():
    scaler = torch.amp.GradScaler("cpu")
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale((w * 2).sum()).backward()
    optimizer.zero_grad()
    scaler.step(optimizer)

def halves():
    h = torch.ones(4, dtype=torch.float16, requires_grad=True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale((h * 2).sum()).backward()
    scaler.unscale_(torch.optim.SGD([h], lr=0.1))
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "mend"),
    [
        ("carried", "detach it there"),
        ("cut", "cuts the loss off"),
        ("several", "one number of the loss"),
        ("saved", "out of place"),
        ("leaf", "torch.no_grad()"),
        ("parts", "clone of the view"),
        ("cached", "outside of inference_mode"),
        ("again", "must compute the same"),
        ("half", "one dtype"),
        ("filled", "torch.finfo"),
        ("unscaled", "Unscale once per step"),
        ("stepped", "finds no gradient"),
        ("halves", "weights in float32"),
    ],
)
def test_what_torch_refuses_comes_with_its_mend(name: str, mend: str, write: Any) -> None:
    spec = f"{write(AUTOGRAD)}:{name}"

    def called_twice() -> None:
        with step_errors(name):
            step = load_target(spec).step
            step()
            step()

    with pytest.raises(StepError, match=r"at .*\.py:\d+\.") as raised:
        called_twice()
    assert mend in raised.value.hint
