"""Scripts that know nothing of Referee: their loop is found, or named, and recorded."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from referee.capture import Plan
from referee.capture.attach import attach
from referee.capture.boundary import Boundary
from referee.errors import OptionError, StepError, TargetError, UserError
from referee.records import schema
from referee.records.capture import Capture

torch = pytest.importorskip("torch")

TRAIN = """
import sys
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step)
print("done", __name__)
"""

INFER = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval()
with torch.inference_mode():
    for _ in range(10):
        model(torch.randn(2, 4))
"""

TWO_OPTIMIZERS = """
import torch
from torch import nn

a, b = nn.Linear(2, 2), nn.Linear(2, 2)
first, second = torch.optim.SGD(a.parameters(), lr=0.1), torch.optim.Adam(b.parameters())
for _ in range(8):
    a(torch.ones(2)).sum().backward()
    first.step()
    b(torch.ones(2)).sum().backward()
    second.step()
"""

PLAN = Plan.of(wait=1, warmup=1, active=3)


def run(tmp_path: Path, text: str, *args: str, plan: Plan = PLAN, **given: Any) -> Capture:
    script = tmp_path / "script.py"
    script.write_text(text)
    given = {"calibrate": False, "device": "cpu", **given}
    return attach(script, args, out_dir=tmp_path / "out", name="s", plan=plan, **given)


def rows_in(path: str, name: str) -> int:
    with gzip.open(path) as stream:
        return sum(e.get("name") == name and e.get("ph") == "X" for e in json.load(stream)["traceEvents"])


def test_a_training_loop_is_found_by_its_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = run(tmp_path, TRAIN, "20")
    assert [file.iterations for file in record.files] == [(2, 3, 4)]
    (path,) = [file.path for file in record.files]
    assert rows_in(path, "aten::addmm") == 2 * 3
    assert rows_in(path, "Optimizer.step#SGD.step") == 3
    finding, stopped = record.findings
    assert finding.code == "step-guessed"
    assert stopped.code == "script-stopped"
    assert stopped.message.startswith("script.py was stopped after iteration 4 (the first is iteration 0)")
    assert "--run-to-end" in stopped.hint
    assert finding.message == "An iteration of script.py is taken to run from one SGD.step() to the next."
    # The script was stopped at the end of iteration 4, in its optimizer's step.
    assert capsys.readouterr().out.splitlines()[-1] == "step 3"


def test_the_script_may_run_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = run(tmp_path, TRAIN, "9", run_to_end=True)
    assert [file.iterations for file in record.files] == [(2, 3, 4)]
    assert record.iterations_run == 9
    assert capsys.readouterr().out.splitlines()[-1] == "done __main__"


def test_what_it_works_on_goes_into_the_provenance(tmp_path: Path) -> None:
    record = run(tmp_path, TRAIN, "20")
    assert record.provenance.dtype == "float32"
    assert {(spec.role, spec.shape) for spec in record.provenance.shapes} == {
        ("input", (2, 4)),
        ("parameter", (8, 4)),
        ("parameter", (8,)),
        ("parameter", (1, 8)),
        ("parameter", (1,)),
    }
    assert record.provenance.value("method.target") == "script.py"


def test_an_inference_loop_is_found_by_its_module(tmp_path: Path) -> None:
    record = run(tmp_path, INFER)
    assert [file.iterations for file in record.files] == [(2, 3, 4)]
    assert rows_in(record.files[0].path, "aten::addmm") == 3
    assert (
        record.findings[0].message
        == "An iteration of script.py is taken to run from one call of Sequential to the next."
    )


def test_checks_before_a_training_are_not_its_steps(tmp_path: Path) -> None:
    checked = TRAIN.replace("for step in", "for _ in range(4): model(torch.ones(1, 4))\nfor step in")
    record = run(tmp_path, checked, "20")
    assert rows_in(record.files[0].path, "Optimizer.step#SGD.step") == 3
    assert rows_in(record.files[0].path, "aten::addmm") == 2 * 3


def test_of_two_optimizers_the_first_to_step_counts(tmp_path: Path) -> None:
    record = run(tmp_path, TWO_OPTIMIZERS)
    assert record.files[0].iterations == (2, 3, 4)
    assert rows_in(record.files[0].path, "Optimizer.step#Adam.step") == 3


def test_a_compiled_module_is_no_reason_for_a_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    compiled = "model = torch.compile(model, backend='eager')\nfor step in"
    record = run(tmp_path, TRAIN.replace("for step in", compiled), "9")
    assert record.files[0].iterations == (2, 3, 4)
    assert not [warned for warned in recwarn if "global hooks" in str(warned.message)]


FOLDS = """
import torch
from torch import nn

for fold in range(4):
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    SCHEDULER
    for step in range(3):
        model(torch.ones(2)).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("scheduler", ["", "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)"])
def test_an_optimizer_made_anew_goes_on_with_the_loop(tmp_path: Path, scheduler: str) -> None:
    record = run(tmp_path, FOLDS.replace("SCHEDULER", scheduler), run_to_end=True, plan=Plan.at((1, 7), active=4))
    assert record.iterations_run == 12
    assert [file.iterations for file in record.files] == [(1, 2, 3, 4), (7, 8, 9, 10)]
    (guessed,) = record.findings
    assert guessed.message == "An iteration of script.py is taken to run from one SGD.step() to the next."


@pytest.mark.parametrize("second", ["torch.optim.SGD(b.parameters(), lr=0.1)", "torch.optim.Adam(b.parameters())"])
def test_the_first_of_several_optimizers_is_taken_and_said(tmp_path: Path, second: str) -> None:
    text = TWO_OPTIMIZERS.replace("torch.optim.Adam(b.parameters())", second)
    text = text.replace("    second.step()\n", "    second.step()\n" * 5)
    record = run(tmp_path, text, run_to_end=True)
    assert record.iterations_run == 8
    (guessed,) = record.findings
    assert guessed.message.endswith("from one SGD.step() to the next, of the first optimizer of several.")


def test_the_user_names_another_optimizer(tmp_path: Path) -> None:
    record = run(tmp_path, TWO_OPTIMIZERS, boundary="optimizer:Adam", run_to_end=True)
    assert record.iterations_run == 8
    assert record.findings == ()


def test_the_user_names_a_module(tmp_path: Path) -> None:
    record = run(tmp_path, TRAIN, "9", boundary="module:ReLU")
    assert record.files[0].iterations == (2, 3, 4)
    assert rows_in(record.files[0].path, "aten::relu") == 3


def test_the_user_names_a_function(tmp_path: Path) -> None:
    text = """
import torch
class Trainer:
    def fit_batch(self):
        return torch.ones(2) + 1
trainer = Trainer()
while True:
    trainer.fit_batch()
"""
    record = run(tmp_path, text, boundary="function:Trainer.fit_batch")
    assert record.files[0].iterations == (2, 3, 4)
    assert rows_in(record.files[0].path, "aten::add") == 3
    assert [finding.code for finding in record.findings] == ["script-stopped"]


def test_modules_beside_the_script_can_be_imported(tmp_path: Path) -> None:
    (tmp_path / "sibling_of_script.py").write_text(INFER)
    record = run(tmp_path, "import sibling_of_script")
    assert record.files[0].iterations == (2, 3, 4)


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    from torch.nn.modules import module as modules
    from torch.optim import optimizer as optimizers

    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    run(tmp_path, TRAIN, "20")
    assert (sys.modules["__main__"], sys.argv, sys.path) == before
    assert not modules._global_forward_hooks
    assert not modules._global_forward_pre_hooks
    assert not optimizers._global_optimizer_post_hooks
    assert not torch.autograd._profiler_enabled()


def test_every_module_runs_unhooked_once_the_step_is_found(tmp_path: Path) -> None:
    text = TRAIN.replace('print("step", step)', "assert not nn.modules.module._global_forward_hooks or step == 0")
    assert run(tmp_path, text, "9", run_to_end=True).iterations_run == 9


def test_a_script_without_steps_is_a_clear_sentence(tmp_path: Path) -> None:
    record = run(tmp_path, "import torch; torch.ones(2)")
    assert [finding.code for finding in record.findings] == ["step-missing", "nothing-recorded"]
    assert record.findings[0].message == (
        "No iteration was found in script.py: no optimizer stepped, and no module was called twice."
    )
    assert all("--boundary" in finding.hint for finding in record.findings)
    assert not list((tmp_path / "out").glob("*.gz"))


def test_a_script_that_exits_before_its_first_step_says_so(tmp_path: Path) -> None:
    record = run(tmp_path, "raise SystemExit(3)")
    words = [finding.message for finding in record.findings]
    assert words[0].endswith("was called twice until the script exited with status 3.")
    assert words[1] == "script.py exited with status 3 after 0 iterations."
    assert words[2] == "No iteration was completed until the script exited with status 3, so nothing was recorded."


def test_a_profiler_of_the_scripts_own_before_the_first_window_is_quiet(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch\nwith torch.profiler.profile():\n    torch.ones(1)\n")
    unset = {name: value for name, value in os.environ.items() if name != "KINETO_LOG_LEVEL"}
    words = [sys.executable, "-m", "referee", "profile", str(script), "--out", str(tmp_path / "out")]
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=unset)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines() == [
        "referee: No iteration was found in script.py: no optimizer stepped, and no module was called twice. "
        "Name what ends an iteration (--boundary): optimizer:CLASS, module:CLASS or function:NAME."
    ]


def test_a_script_that_raises_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    text = TRAIN.replace("optimizer.zero_grad()", "optimizer.zero_grad(); 1 / (5 - step)").replace(
        "range(int", "range(+int"
    )
    with pytest.raises(StepError) as caught:
        run(tmp_path, text, "20", plan=Plan.of(wait=1, warmup=1, active=9))
    assert "script.py raised ZeroDivisionError in line 11: division by zero." in caught.value.message
    assert "4 iterations (2 to 5) had been recorded and saved" in caught.value.hint
    saved = schema.load(tmp_path / "out" / "s.capture.json")
    assert isinstance(saved, Capture)
    assert saved.files[0].iterations == (2, 3, 4, 5)


def test_a_script_that_catches_everything_is_still_stopped(tmp_path: Path) -> None:
    text = TRAIN.replace(
        "    optimizer.step()", "    try:\n        optimizer.step()\n    except Exception:\n        pass"
    )
    assert run(tmp_path, text, "1000").iterations_run == 5


@pytest.mark.parametrize(("status", "words"), [("0", "the run ended"), ("3", "the script exited with status 3")])
def test_a_script_that_exits_early(tmp_path: Path, status: str, words: str) -> None:
    record = run(tmp_path, TRAIN.replace('print("step", step)', f"step == 3 and sys.exit({status})"), "20")
    assert record.files[0].iterations == (2, 3)
    assert any(words in finding.message for finding in record.findings)


def test_a_script_with_a_profiler_of_its_own_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Another torch profiler"):
        run(tmp_path, "import torch\nwith torch.profiler.profile():\n  " + "\n  ".join(INFER.strip().splitlines()))


@pytest.mark.parametrize("text", ["optimiser", "function", "function:", "auto:x", ""])
def test_what_names_no_step_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="names no step"):
        Boundary.parse(text)


def test_a_function_that_is_not_there_is_refused_before_the_script_runs(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="defines no function fit"):
        run(tmp_path, "raise SystemExit(9)", boundary="function:fit")


def test_a_script_that_is_no_python_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="line 2 is not Python"):
        run(tmp_path, "x = 1\ny = = 2\n")
    with pytest.raises(TargetError, match="cannot be read"):
        attach(tmp_path / "absent.py", out_dir=tmp_path, name="s")
