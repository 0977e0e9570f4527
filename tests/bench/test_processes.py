from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from referee.bench.measure import measure
from referee.bench.plan import Plan
from referee.bench.processes import ProcessSide, compare_processes, run_side
from referee.bench.revisions import check_code, checkout, environment_in, target_in, top_of
from referee.device.fake import FakeSync
from referee.errors import OptionError, StepError
from referee.records.finding import Finding
from referee.records.measurement import Measurement
from referee.records.schema import to_json
from referee.units import NS_PER_MS

PLAN = Plan(budget_ns=10 * NS_PER_MS, min_ns=5 * NS_PER_MS, clocks=("settled_amortised",))
A, B = ProcessSide(name="a", command=["a"]), ProcessSide(name="b", command=["b"])


def measured(ns: int, **switches: str) -> Measurement:
    device = FakeSync()
    return measure(lambda: device.run(host_ns=ns), device=device, plan=PLAN, switches=switches)


def runner(times: dict[str, list[int]], order: list[str] | None = None):  # type: ignore[no-untyped-def]
    """Each process of a side reads the next of its times."""
    count: Counter[str] = Counter()

    def run(side: ProcessSide) -> Measurement:
        if order is not None:
            order.append(side.name)
        count[side.name] += 1
        return measured(times[side.name][count[side.name] - 1])

    return run


def test_sides_take_turns_so_that_drift_meets_both() -> None:
    order: list[str] = []
    compare_processes([A, B], processes=4, run=runner({"a": [10_000] * 4, "b": [10_000] * 4}, order))
    assert order == ["a", "b", "b", "a"] * 2


def test_a_difference_beyond_the_layout_noise_is_found() -> None:
    times = {"a": [10_000, 10_200, 9_900, 10_100, 10_050], "b": [11_000, 11_300, 10_900, 11_200, 11_050]}
    found = compare_processes([A, B], run=runner(times))
    assert found.answer == "slower"
    assert found.processes == 5
    assert found.ratio == pytest.approx(1.09, abs=0.02)


def test_a_difference_within_the_layout_noise_is_not() -> None:
    times = {"a": [10_000, 10_300, 9_900, 10_100, 10_050], "b": [10_100, 10_400, 9_950, 10_250, 10_000]}
    assert compare_processes([A, B], run=runner(times)).answer in ("same", "cannot-tell")


def test_sides_that_differ_elsewhere_are_refused_after_one_round() -> None:
    order: list[str] = []

    def run(side: ProcessSide) -> Measurement:
        order.append(side.name)
        return measured(10_000, grad_mode="grad" if side.name == "a" else "no_grad")

    found = compare_processes([A, B], run=run)
    assert found.answer == "cannot-tell"
    assert [f.code for f in found.findings] == ["not-comparable"]
    assert order == ["a", "b"]


def test_findings_of_the_processes_are_told_once_a_side() -> None:
    def run(side: ProcessSide) -> Measurement:
        found = measured(10_000)
        finding = Finding(code="disturbed", severity="warning", message="Something else ran.")
        return replace(found, findings=(finding,)) if side.name == "b" else found

    found = compare_processes([A, B], processes=4, run=run)
    assert [(f.code, f.evidence["processes"]) for f in found.findings] == [("disturbed", 4)]


def test_an_interrupt_keeps_the_rounds_that_were_complete() -> None:
    calls: list[str] = []

    def run(side: ProcessSide) -> Measurement:
        calls.append(side.name)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return measured(10_000)

    found = compare_processes([A, B], processes=6, run=run)
    assert (found.stop_reason, found.answer) == ("interrupted", "same")


def test_a_process_that_fails_costs_itself_alone() -> None:
    """Four of five processes a side are there already: an answer, and what ended it."""
    done: list[ProcessSide] = []

    def run(side: ProcessSide) -> Measurement:
        if len(done) == 9:
            raise StepError("b ended with status 2: out of memory")
        done.append(side)
        return measured(10_000)

    found = compare_processes([A, B], processes=5, run=run)
    assert (found.stop_reason, found.answer, found.processes) == ("raised", "same", 4)
    ended = next(finding for finding in found.findings if finding.code == "step-raised")
    assert "out of memory. The answer stands on the 9 processes before it." in ended.message

    def never(side: ProcessSide) -> Measurement:
        if side is B:
            raise StepError("b ended with status 2: no such name")
        return measured(10_000)

    with pytest.raises(StepError, match="no such name"):
        compare_processes([A, B], processes=4, run=never)


def test_too_few_processes_are_refused_beforehand() -> None:
    with pytest.raises(OptionError, match="At least 4"):
        compare_processes([A, B], processes=3)


def test_a_real_process_hands_back_its_record(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(to_json(measured(12_000)))
    side = ProcessSide(name="cat", command=[sys.executable, "-c", f"print(open({str(path)!r}).read())"])
    assert run_side(side).median_ns == 12_000


def test_a_process_that_fails_is_told_with_its_last_words() -> None:
    side = ProcessSide(name="bad", command=[sys.executable, "-c", "import sys; sys.exit('no such step')"])
    with pytest.raises(StepError, match="bad ended with status 1: no such step"):
        run_side(side)
    with pytest.raises(OptionError, match="cannot be run"):
        run_side(ProcessSide(name="absent", command=["/no/such/program"]))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits of one file, and an uncommitted change."""
    folder = tmp_path / "repo"
    (folder / "pkg").mkdir(parents=True)

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
            check=True,
            capture_output=True,
        )

    git("init", "--quiet")
    for text in ("first", "second"):
        (folder / "pkg" / "step.py").write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", text)
    (folder / "pkg" / "step.py").write_text("uncommitted")
    return folder


def test_a_revision_is_checked_out_beside_the_users_tree(repository: Path) -> None:
    with checkout("HEAD~1", repository=repository / "pkg") as folder:
        assert (folder / "step.py").read_text() == "first"
        assert (repository / "pkg" / "step.py").read_text() == "uncommitted"
    assert not folder.exists()
    listed = subprocess.run(["git", "-C", str(repository), "worktree", "list"], capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1


def test_what_is_no_revision_or_no_repository_is_one_sentence(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="'nowhere' is no revision"), checkout("nowhere", repository=repository):
        pass
    (tmp_path / "plain").mkdir()
    with pytest.raises(OptionError, match="no git repository"), checkout("HEAD", repository=tmp_path / "plain"):
        pass


# code of the working tree in a process that should run a checkout


@pytest.fixture
def library(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same repository, entered, with a package below ``src`` at one commit and changed since."""
    package = repository / "src" / "mine"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("STATE = 'committed'")
    words = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["add", "."], [*words, "commit", "--quiet", "-m", "third"]):
        subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True)
    (package / "__init__.py").write_text("STATE = 'uncommitted'")
    monkeypatch.chdir(repository)
    return repository


def test_a_target_is_named_so_that_each_checkout_has_its_own(library: Path, tmp_path: Path) -> None:
    top = top_of()
    assert target_in(f"{library}/pkg/step.py:f", top=top) == target_in("pkg/step.py:f", top=top) == "pkg/step.py:f"
    assert target_in("mine.steps:f", top=top) == "mine.steps:f"
    (tmp_path / "other.py").write_text("")
    for outside in (str(tmp_path / "other.py"), "../other.py"):
        with pytest.raises(OptionError, match="outside of the repository repo"):
            target_in(f"{outside}:f", top=top)


@pytest.mark.parametrize("editable", [False, True])
def test_imports_come_from_the_checkout(library: Path, editable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What PYTHONPATH or an editable install puts on the path leads to the working tree."""
    if editable:
        monkeypatch.syspath_prepend(str(library / "src"))
    else:
        monkeypatch.setenv("PYTHONPATH", str(library / "src"))
    code = "import mine; print(mine.STATE)"
    with checkout("HEAD") as folder:
        environment = environment_in(folder, top=top_of())
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, cwd=folder, env=dict(environment), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "committed"


def test_what_is_imported_from_the_working_tree_is_found_out(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = top_of()
    source = library / "pkg" / "step.py"
    with checkout("HEAD") as folder:
        monkeypatch.chdir(folder)
        assert check_code(str(folder / "pkg" / "step.py"), top=top) == ()
        (installed,) = check_code(str(library.parent / "elsewhere.py"), top=top)
        assert (installed.code, installed.severity) == ("other-code", "fatal")
        module = ModuleType("mine")
        module.__file__ = str(library / "src" / "mine" / "__init__.py")
        monkeypatch.setitem(sys.modules, "mine", module)
        (found,) = check_code(str(folder / "pkg" / "step.py"), top=top)
        assert "mine is imported from" in found.message
    assert source.exists()


def test_being_told_to_end_leaves_no_checkout_behind(repository: Path) -> None:
    code = (
        "import os, signal, sys\nfrom referee.bench.revisions import checkout\n"
        "with checkout('HEAD', repository=sys.argv[1]) as folder:\n"
        "    print(folder, flush=True)\n    os.kill(os.getpid(), signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(repository)], capture_output=True, text=True)
    assert done.returncode == 128 + signal.SIGTERM
    assert not Path(done.stdout.strip()).exists()
    listed = subprocess.run(["git", "-C", str(repository), "worktree", "list"], capture_output=True, text=True).stdout
    assert len(listed.splitlines()) == 1
