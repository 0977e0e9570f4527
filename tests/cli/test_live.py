"""The live commands end to end on small targets: answers, statuses, and what a mistake is told."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from referee.bench import stopping
from referee.cli.main import main

pytest.importorskip("torch")

TARGETS = """
import torch

def linear(batch_size=4, width=16, dtype=torch.float32):
    x = torch.randn(batch_size, width, dtype=dtype)
    layer = torch.nn.Linear(width, width, dtype=dtype)
    def step():
        with torch.no_grad():
            return layer(x)
    return step

def raises():
    def step():
        raise ValueError("shapes differ")
    return step

def silent():
    def step():
        torch.ones(2) + 1
    return step

def leaves():
    def step():
        raise SystemExit(3)
    return step

def zeros():
    x = torch.zeros(8)
    return lambda: x + 1

def talks():
    x = torch.randn(8)
    def step():
        print("noise")
        return x + 1
    return step

def no_batch():
    x = torch.randn(8)
    return lambda: x + 1

def exhausted():
    parts = iter([torch.randn(8)] * 4)
    return lambda: next(parts) + 1

def promises():
    from concurrent.futures import Future
    return lambda: {"later": Future()}

def ends(batch_size=4):
    x = torch.randn(batch_size, 8)
    # More than a warm-up may take where the machine never settles (100,000 calls).
    left = iter(range(120_000))
    def step():
        next(left)
        return x + 1
    return step

def too_large(batch_size=4):
    if batch_size > 4:
        raise MemoryError("no room")
    x = torch.randn(batch_size, 8)
    return lambda: x + 1
"""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("targets") / "targets.py"
    path.write_text(TARGETS)
    return path


def run_json(*words: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> Any:
    assert main([*words, "--json", "-", "--no-progress"]) == status
    return json.loads(capsys.readouterr().out)


def test_bench_writes_the_fixed_keys(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json("bench", f"{targets}:linear", "--threads", "1", "--budget", "200ms", capsys=capsys)
    assert found["schema"] == "referee.measurement/1"
    for key in ("median_ns", "ci_low_ns", "ci_high_ns", "ci_level", "iqr_ns", "p95_ns", "n", "n_eff", "blocks"):
        assert key in found
    assert set(found["clocks"]) == {"enqueue_ns", "settled_amortised_ns", "settled_per_call_ns", "device_ns"}
    assert found["clocks"]["enqueue_ns"] is None
    assert {"calls", "total_ns", "first_call_ns", "steady"} <= set(found["warmup"])
    provenance = found["provenance"]
    sections = {"chip", "accelerator", "dtype", "shapes", "method", "software", "switches", "machine_state"}
    assert sections <= set(provenance)
    assert provenance["dtype"] == "float32"
    assert provenance["chip"]["threads"] == 1
    assert any(spec["shape"] == [4, 16] and spec["role"] == "input" for spec in provenance["shapes"])
    assert len(found["samples_ns"]) == found["blocks"]


def test_a_refused_number_is_an_answer_and_has_its_reason(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 4 is for comparisons and verifications; a script asks for the number, and finds none."""
    assert main(["bench", f"{targets}:zeros", "--budget", "50ms", "--json", "-", "--no-progress"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["median_ns"] is None
    assert [finding["code"] for finding in found["findings"] if finding["severity"] == "fatal"] == ["zero-inputs"]


def test_bench_hands_over_what_the_target_declares(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("bench", f"{targets}:linear", "--budget", "100ms", "--batch-size", "3", "--param", "width=8")
    found = run_json(*words, "--dtype", "bfloat16", capsys=capsys)
    assert found["provenance"]["dtype"] == "bfloat16"
    assert any(spec["shape"] == [3, 8] for spec in found["provenance"]["shapes"])


def test_sweep_writes_the_fixed_keys(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sweep", f"{targets}:linear", "--values", "1,2,4,8", "--budget", "60ms", "--threads", "1")
    found = run_json(*words, "--price", "3.6", "--served", "4", capsys=capsys)
    assert found["schema"] == "referee.sweep/1"
    assert found["parameter"] == "batch_size"
    assert [point["value"] for point in found["points"]] == [1, 2, 4, 8]
    assert {"law", "host_ns", "fixed_ns", "slope_ns", "knee", "knee_low", "knee_high"} <= set(found["fit"])
    for point in found["points"]:
        if point["median_ns"]:
            assert point["throughput_per_s"] == pytest.approx(point["value"] * 1e9 / point["median_ns"])
            # 3.6 an hour is a thousandth a second.
            assert point["items_per_dollar"] == pytest.approx(point["throughput_per_s"] * 1000)


def test_sweep_draws(targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    for suffix, magic in ((".svg", b"<svg xmlns="), (".png", b"\x89PNG")):
        path = tmp_path / f"plot{suffix}"
        words = ("sweep", f"{targets}:linear", "--values", "1,2", "--budget", "50ms", "--plot", str(path))
        run_json(*words, capsys=capsys)
        assert path.read_bytes().startswith(magic)


def test_sweep_varies_further_parameters(targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.svg"
    words = ("sweep", f"{targets}:linear", "--values", "1,2", "--also", "dtype=float32,bfloat16", "--also", "threads=1")
    found = run_json(*words, "--budget", "30ms", "--plot", str(plot), capsys=capsys)
    assert found["schema"] == "referee.sweeps/1"
    assert [each["fixed"] for each in found["sweeps"]] == [
        {"dtype": "float32", "threads": 1},
        {"dtype": "bfloat16", "threads": 1},
    ]
    for each in found["sweeps"]:
        provenance = each["sweep"]["provenance"]
        assert provenance["dtype"] == each["fixed"]["dtype"]
        assert [point["value"] for point in each["sweep"]["points"]] == [1, 2]
    assert plot.read_bytes().startswith(b"<svg xmlns=")


@pytest.mark.parametrize(
    ("also", "words"),
    [
        ("width", "a name and its values are wanted"),
        ("batch_size=4", "that is what is swept already"),
        ("depth=1,2", "declares no parameter 'depth'"),
        ("width=8,8", "--also width=8,8: the values must be distinct"),
    ],
)
def test_what_cannot_be_varied_further_is_told(
    targets: Path, capsys: pytest.CaptureFixture[str], also: str, words: str
) -> None:
    assert main(["sweep", f"{targets}:linear", "--values", "1,2", "--also", also, "--no-progress"]) == 2
    assert words in capsys.readouterr().err


def test_compare_varies_a_parameter(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", f"{targets}:linear", "--vary", "width=16,1024", "--budget", "400ms", "--threads", "1")
    assert main([*words, "--json", "-", "--no-progress"]) in (0, 4)
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "referee.compare/1"
    assert {"ratio", "ci_low", "ci_high", "aa_ratio_low", "aa_ratio_high", "answer"} <= set(found)
    # 4,096 times the work: an answer, where there is one, can only be one.
    assert found["answer"] in ("slower", "cannot-tell")


def test_compare_refuses_another_grad_mode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.py"
    path.write_text(TARGETS + "\ndef graded(batch_size=4):\n    layer = torch.nn.Linear(16, 16)\n"
                    "    x = torch.randn(batch_size, 16)\n    return lambda: layer(x)\n")  # fmt: skip
    words = ("compare", f"{path}:linear", f"{path}:graded", "--budget", "100ms")
    found = run_json(*words, capsys=capsys, status=4)
    assert found["answer"] == "cannot-tell"
    assert any(f["code"] == "not-comparable" and "grad_mode" in f["message"] for f in found["findings"])


def test_a_saved_result_is_verified(targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "saved.json"
    words = ["bench", f"{targets}:linear", "--budget", "200ms", "--threads", "1", "--json", str(saved)]
    assert main([*words, "--no-progress"]) == 0
    capsys.readouterr()
    status = main(["verify", str(saved), "--json", "-", "--no-progress"])
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "referee.verify/1"
    assert status == {"reproduced": 0, "not-reproduced": 1, "cannot-tell": 4}[found["answer"]]
    assert not found["differences"]


ODD = """
import torch

def odd(batch_size=4, act=torch.relu, sizes=(8, 16), label=None, names=["a", "b"], deep={"a": 1}, width: int = 8):
    assert callable(act) and label is None and names == ["a", "b"] and deep == {"a": 1} and sizes == (8, 16)
    x = torch.randn(batch_size, width)
    return lambda: act(x)

def wordless(act=torch.relu):
    x = torch.randn(4)
    return lambda: act(x)
"""


def verified(saved: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """The verification of a saved result; its times are the machine's own, its conditions are not."""
    status = main(["verify", str(saved), *words, "--json", "-", "--no-progress"])
    captured = capsys.readouterr()
    assert status in (0, 1, 4), captured.err
    found = json.loads(captured.out)
    assert not found["differences"]
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["--stmt", "x @ x", "--setup", "import torch; x = torch.randn(8, 8)"],
        ["{t}:odd", "--param", "width=4", "--cache", "flushed"],
        ["{t}:odd", "--batch-size", "2"],
        ["{t}:wordless"],
    ],
)
def test_what_bench_wrote_is_run_again_as_it_was(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    saved = tmp_path / "saved.json"
    given = [word.replace("{t}", str(tmp_path / "odd.py")) for word in words]
    command = ["bench", *given, "--budget", "50ms", "--threads", "1", "--json", str(saved), "--no-progress"]
    assert main(command) == 0
    capsys.readouterr()
    found = verified(saved, "--budget", "60ms", capsys=capsys)
    assert found["again"]["provenance"]["method"]["budget_ns"] == 60_000_000
    for key in ("setup", "parameters", "cache_state"):
        assert found["again"]["provenance"]["method"].get(key) == found["saved"]["provenance"]["method"].get(key)


def test_a_point_of_a_sweep_is_verified(targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "sweep.json"
    words = ["sweep", f"{targets}:linear", "--values", "2,4", "--budget", "40ms", "--threads", "1"]
    assert main([*words, "--json", str(saved), "--no-progress"]) == 0
    capsys.readouterr()
    found = verified(saved, "--at", "4", capsys=capsys)
    assert found["name"].endswith("[batch_size=4]")
    for at, says in (((), "Name one: --at 2 or --at 4"), (("--at", "3"), "has no point 3")):
        assert main(["verify", str(saved), *at, "--no-progress"]) == 2
        assert says in capsys.readouterr().err


def test_a_target_that_has_moved_is_named_anew(
    targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, moved, saved = tmp_path / "first.py", tmp_path / "moved.py", tmp_path / "saved.json"
    first.write_text(TARGETS)
    words = ["bench", f"{first}:linear", "--budget", "40ms", "--threads", "1", "--json", str(saved)]
    assert main([*words, "--no-progress"]) == 0
    moved.write_text(first.read_text() + "\n# edited\n")
    first.unlink()
    capsys.readouterr()
    assert main(["verify", str(saved), "--no-progress"]) == 2
    assert "does not exist here" in capsys.readouterr().err
    found = verified(saved, "--target", f"{moved}:linear", capsys=capsys)
    assert found["why"].endswith("the target's file has been edited since")


def test_a_record_of_several_sides_says_what_can_be_verified(
    targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "compared.json"
    words = ["compare", f"{targets}:linear", f"{targets}:linear", "--budget", "40ms", "--threads", "1"]
    assert main([*words, "--json", str(saved), "--no-progress"]) in (0, 4)
    capsys.readouterr()
    assert main(["verify", str(saved), "--no-progress"]) == 2
    assert "a point of a sweep can be verified" in capsys.readouterr().err


def test_profile_leaves_a_trace_that_reads_back(
    targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_json("profile", f"{targets}:linear", "--out", str(tmp_path), capsys=capsys)
    assert found["schema"] == "referee.profile/1"
    (file,) = found["capture"]["files"]
    assert file["iterations"] == [3, 4, 5]
    assert len(found["reports"][0]["steps"]) == 3
    again = run_json("trace", file["path"], capsys=capsys)
    assert again["totals"] == found["reports"][0]["totals"]
    assert again["provenance"]["dtype"] == "float32"
    assert again["verdict"]["regime"] == "cannot-tell"


def test_profile_plan_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--plan", "--wait", "2", "--warmup", "1", "--active", "2"]) == 0
    assert "iteration 3 to 4 of 5" in capsys.readouterr().out


def test_check_writes_a_report(targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("check", f"{targets}:linear", "--budget", "100ms", "--values", "1,2,4,8", "--out", str(tmp_path))
    found = run_json(*words, "--threads", "1", capsys=capsys)
    assert found["schema"] == "referee.check/1"
    assert found["verdict"]["regime"] in ("overhead-bound", "compute-bound", "mixed", "cannot-tell")
    assert found["remedies"]
    assert (tmp_path / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tmp_path / "check.json").read_text()) == found
    assert (tmp_path / "measurement.json").is_file()
    assert (tmp_path / "sweep.json").is_file()


def test_a_check_whose_step_ends_answers_with_what_there_is(
    targets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whatever the machine does meanwhile, nothing but the step's end stops the measurement.
    for rule in (stopping.UntilTime, stopping.UntilPrecise, stopping.MaxBlocks):
        monkeypatch.setattr(rule, "reason", lambda rule, sampling: None)
    (tmp_path / "sweep.json").write_text("left by an earlier check")
    words = ("check", f"{targets}:ends", "--budget", "10s", "--out", str(tmp_path), "--threads", "1")
    found = run_json(*words, capsys=capsys)
    assert found["measurement"]["stop_reason"] == "raised"
    assert found["measurement"]["median_ns"] > 0
    assert found["sweep"] is None
    assert found["capture"] is None
    assert not (tmp_path / "sweep.json").exists()


def test_a_sweep_keeps_the_values_that_fit(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sweep", f"{targets}:too_large", "--budget", "50ms", "--values", "1,2,4,8", "--threads", "1")
    found = run_json(*words, capsys=capsys)
    assert [point["value"] for point in found["points"]] == [1, 2, 4]
    failed = next(f for f in found["findings"] if f["code"] == "point-failed")
    assert "batch_size=8 could not be measured" in failed["message"]
    assert "MemoryError: no room at" in failed["message"]


def test_env_lists_devices(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json("env", capsys=capsys)
    assert {"cpu", "lazy"} <= {device["name"] for device in found["devices"] if device["available"]}


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["bench", "missing.py:step"], 2, "missing.py"),
        (["bench", "{t}:raises"], 2, "ValueError: shapes differ"),
        (["bench", "{t}:silent"], 2, "returns nothing"),
        (["bench", "{t}:leaves"], 2, "SystemExit"),
        (["bench", "{t}:exhausted"], 2, "let it begin again when its data end"),
        (["compare", "{t}:no_batch", "{t}:exhausted"], 2, "let it begin again when its data end"),
        (["bench", "{t}:promises"], 2, "returns a Future, whose work may go on"),
        (["bench", "{t}:linaer"], 2, "linear"),
        (["bench", "{t}:linear", "--device", "cuda"], 3, "cuda"),
        (["bench", "{t}:linear", "--threads", "100000"], 2, "threads"),
        (["bench", "{t}:linear", "--device", "gpu"], 2, "cuda"),
        (["bench", "{t}:linear", "--param", "depth=2"], 2, "depth"),
        (["sweep", "{t}:no_batch"], 2, "batch_size"),
        (["sweep", "{t}:linear", "--values", "1,x"], 2, "mixed"),
        (["sweep", "{t}:linear", "--plot", "x.gif"], 2, ".svg"),
        (["compare", "{t}:linear"], 2, "two targets"),
        (["compare", "{t}:linear", "--vary", "width"], 2, "NAME=A,B"),
        (["compare", "{t}:linear", "--vary", "width=8,8"], 2, "distinct"),
        (["profile", "{t}:linear", "--active", "0"], 2, "nothing would be recorded"),
        (["profile", "{t}:linear", "--iterations", "2"], 2, "iteration 3"),
        (["verify", "{t}"], 2, "not JSON"),
        (["sweep", "{t}:linear", "--price", "-3"], 2, "--price"),
        (["sweep", "{t}:linear", "--price", "nan"], 2, "--price"),
        (["bench", "{t}:linear", "--report", "a.html", "--report", "b.md"], 2, "twice"),
        (["bench", "{t}:linear", "--report", "a.html", "--json", "a.html"], 2, "one file"),
        (["bench", "{t}:linear", "--param", "width=8", "--param", "width=16"], 2, "width is given twice"),
        (["bench", "{t}:linear", "--param", "batch_size=8", "--batch-size", "4"], 2, "say the same thing"),
        (["bench", "--stmt", "await x"], 2, "--stmt is not Python"),
        (["bench", "--stmt", "break"], 2, "--stmt is not Python"),
    ],
)
def test_a_mistake_gets_one_sentence(
    words: list[str], status: int, says: str, targets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("a CUDA device is here")
    assert main([word.replace("{t}", str(targets)) for word in words] + ["--no-progress"]) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert "Traceback" not in captured.err
    assert len([line for line in captured.err.splitlines() if line]) == 1


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.json", b"", "empty"),
        ("notes.json", b"this is no trace\n", "notes.json"),
        ("other.json", b'{"a": 1}', "other.json"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": [', mtime=0)[:12], "cut.json.gz"),
    ],
)
def test_what_is_no_trace_is_told(
    name: str, content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["trace", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1


def test_a_directory_without_traces_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", str(tmp_path)]) == 2
    assert str(tmp_path) in capsys.readouterr().err


def test_a_truncated_file_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from referee.trace.builder import TraceBuilder

    builder = TraceBuilder()
    for number in range(200):
        builder.op(f"aten::op{number}", number * 1_000, 900)
    packed = gzip.compress(builder.to_json(), compresslevel=1)
    path = tmp_path / "cut.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    found = run_json("trace", str(path), capsys=capsys)
    (finding,) = [f for f in found["findings"] if f["code"] == "truncated"]
    assert finding["evidence"]
    assert 0 < found["totals"]["ops"] < 200


def test_one_bad_file_of_several_is_a_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from referee.trace.builder import TraceBuilder

    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    builder = TraceBuilder()
    builder.op("aten::add", 0, 10)
    good.write_bytes(builder.to_json())
    bad.write_bytes(b"nothing")
    found = run_json("trace", str(good), str(bad), capsys=capsys)
    assert [report["source"] for report in found["reports"]] == [str(good)]
    assert [finding["code"] for finding in found["findings"]] == ["unreadable"]


SCRIPT = """
import sys
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
"""


def test_a_script_is_profiled_without_being_edited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    words = ["profile", str(script), "--out", str(tmp_path / "out"), "--no-calibrate", "--json", "-", "--", "12"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    (file,) = found["capture"]["files"]
    assert file["iterations"] == [3, 4, 5]
    assert any(finding["code"] == "step-guessed" for finding in found["capture"]["findings"])


def test_nothing_else_takes_arguments_after_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--", "x"]) == 2
    assert "--" in capsys.readouterr().err


def test_the_plan_tells_its_size(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", f"{targets}:linear", "--plan"]) == 0
    assert "on disk" in capsys.readouterr().out


def small_trace(path: Path) -> Path:
    from referee.trace.builder import TraceBuilder

    builder = TraceBuilder()
    for number in range(3):
        builder.op("aten::add", number * 1_000, 900)
    path.write_bytes(builder.to_json())
    return path


def test_a_query_over_the_rows_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    path = small_trace(tmp_path / "t.json")
    sql = "SELECT name, count(*) AS n, sum(end_ns - start_ns) AS ns FROM rows GROUP BY name"
    assert run_json("trace", str(path), "--sql", sql, capsys=capsys) == [{"name": "aten::add", "n": 3, "ns": 2700}]
    assert main(["trace", str(path), "--sql", "SELECT nothing FROM rows"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_an_answer_in_json_is_valid_and_loses_no_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    path = small_trace(tmp_path / "t.json")
    odd = "'inf'::DOUBLE AS x, ['nan'::DOUBLE, 1] AS y, {'a': 'inf'::DOUBLE} AS z"
    sql = f"SELECT count(*) AS n, min(start_ns) AS n, {odd} FROM rows"
    assert run_json("trace", str(path), "--sql", sql, capsys=capsys) == [
        {"n": 3, "n_1": 0, "x": None, "y": [None, 1], "z": {"a": None}}
    ]


def test_rows_are_exported_and_a_copy_is_redacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = small_trace(tmp_path / "t.json")
    words = ["trace", str(path), "--export", str(tmp_path / "t.parquet"), "--redact", str(tmp_path / "copy.json")]
    assert main(words) == 0
    assert parquet.read_table(tmp_path / "t.parquet").num_rows == 3
    first, second = (run_json("trace", str(p), capsys=capsys) for p in (path, tmp_path / "copy.json"))
    assert first["totals"] == second["totals"]
    assert main(["trace", str(path), "--redact", str(path)]) == 2


def test_standard_input_serves_the_export_and_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = small_trace(tmp_path / "t.json")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    assert main(["trace", "-", "--export", str(tmp_path / "t.parquet"), "--redact", str(tmp_path / "copy.json")]) == 0
    assert parquet.read_table(tmp_path / "t.parquet").num_rows == 3
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()


def test_two_traces_are_held_against_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from referee.testing import Workload, simulate

    for name, kernel_ns in (("a.json", 50_000), ("b.json", 100_000)):
        (tmp_path / name).write_bytes(simulate(Workload(kernel_ns=kernel_ns, op_ns=5_000)).file)
    found = run_json("diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), capsys=capsys)
    assert found["schema"] == "referee.diff/1"
    assert found["answer"] == "slower"
    assert found["ratio"] == pytest.approx(2.0, rel=0.02)


def test_json_stands_alone_although_the_step_prints(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", f"{targets}:talks", "--budget", "50ms", "--json", "-", "--no-progress"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["schema"] == "referee.measurement/1"
    assert "noise" in captured.err


def test_rows_without_any_duration_get_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from referee.trace.builder import TraceBuilder

    builder = TraceBuilder()
    for number in range(20):
        builder.launch("cudaLaunchKernel", number * 10_000, 2_000, correlation=number + 1)
        builder.kernel("k", number * 10_000 + 3_000, 0, correlation=number + 1)
    (tmp_path / "t.json").write_bytes(builder.to_json())
    assert run_json("trace", str(tmp_path / "t.json"), capsys=capsys)["verdict"]["regime"] == "cannot-tell"


def test_a_lone_surrogate_in_a_name_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = '{"ph": "X", "cat": "cpu_op", "name": "a\\ud800b", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    (tmp_path / "t.json").write_text(f'{{"traceEvents": [{row}]}}')
    assert run_json("trace", str(tmp_path / "t.json"), capsys=capsys)["totals"]["ops"] == 1


def test_a_sweep_starts_at_its_own_values_and_not_at_the_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "large.py"
    file.write_text(
        "import torch\n"
        "def step_of(batch_size=64):\n"
        "    if batch_size > 2: raise MemoryError('no room')\n"
        "    x = torch.randn(batch_size, 8)\n"
        "    return lambda: x + 1\n"
    )
    words = ("sweep", f"{file}:step_of", "--budget", "50ms", "--values", "4,1,2", "--threads", "1")
    found = run_json(*words, capsys=capsys)
    assert [point["value"] for point in found["points"]] == [1, 2]
    assert [f["evidence"]["error"] for f in found["findings"] if f["code"] == "point-failed"] == ["MemoryError"]
    assert main([*words[:5], "4,8", "--no-progress"]) == 2
    assert "MemoryError: no room" in capsys.readouterr().err


def test_threads_are_swept_without_being_declared(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sweep", f"{targets}:no_batch", "--budget", "50ms", "--parameter", "threads", "--values", "1,2")
    found = run_json(*words, capsys=capsys)
    assert [p["measurement"]["provenance"]["chip"]["threads"] for p in found["points"]] == [1, 2]
    assert "switches-differ" not in [f["code"] for f in found["findings"]]
    assert main([*words[:7], "many,more", "--no-progress"]) == 2
    assert "not a number of threads" in capsys.readouterr().err


def test_a_price_and_words_are_shown(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("sweep", f"{targets}:linear", "--budget", "50ms", "--threads", "1", "--no-progress", "--price", "3")
    assert main([*words, "--values", "1,2", "--served", "2"]) == 0
    shown = capsys.readouterr().out
    assert "Per dollar" in shown
    assert "Served at batch_size 2" in shown
    assert "items per dollar" in shown
    assert main([*words, "--parameter", "dtype", "--values", "float32,bfloat16"]) == 0
    shown = capsys.readouterr().out
    assert "dtype = float32, bfloat16" in shown
    assert "whatever dtype is" in shown or "none" in shown


@pytest.mark.parametrize("option", [("--price", "3"), ("--plot", "a.svg"), ("--price", "3", "--served", "1")])
def test_what_a_mixture_does_not_use_is_refused(
    targets: Path, option: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", f"{targets}:linear", "--serving", "--values", "1,2", *option, "--no-progress"]) == 2
    assert "--serving" in capsys.readouterr().err


def test_no_processes_are_no_comparison(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", f"{targets}:linear", f"{targets}:linear", "--processes", "0", "--no-progress"]) == 2
    assert "--processes 0" in capsys.readouterr().err


def test_compare_varies_the_device_and_each_side_states_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "placed.py"
    path.write_text(
        "import torch\ndef placed(device='cpu'):\n    x = torch.randn(8, 8).to(device)\n    return lambda: x @ x\n"
    )
    words = ["compare", f"{path}:placed", "--vary", "device=cpu,lazy", "--budget", "60ms", "--threads", "1"]
    assert main([*words, "--json", "-", "--no-progress"]) in (0, 4)
    found = json.loads(capsys.readouterr().out)
    assert not found["pairs"][0]["differences"]
    assert [side["provenance"]["accelerator"] is None for side in found["sides"]] == [True, False]
