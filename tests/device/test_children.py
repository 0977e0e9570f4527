"""What child processes have computed is read from the kernel, without their help."""

from __future__ import annotations

import subprocess
import sys

import pytest

from referee.device.children import children_ns
from referee.units import NS_PER_MS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists a process's children")

COMPUTE = """
import sys, threading, time
def compute():
    while time.thread_time_ns() < 60_000_000:
        pass
worker = threading.Thread(target=compute)
worker.start()
compute()
worker.join()
print("done", flush=True)
sys.stdin.read()
"""

GRANDCHILD = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {COMPUTE!r}], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
child.stdout.readline()
print("done", flush=True)
sys.stdin.read()
child.communicate()
"""


@pytest.mark.parametrize("program", [COMPUTE, GRANDCHILD])
def test_what_a_living_or_ended_child_has_computed_is_counted(program: str) -> None:
    before_ns = children_ns()
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert children_ns() - before_ns >= 120 * NS_PER_MS
    child.communicate()
    assert children_ns() - before_ns >= 120 * NS_PER_MS


def test_the_workers_of_the_compiler_are_left_out() -> None:
    before_ns = children_ns()
    arguments = [sys.executable, "-c", COMPUTE, "torch/_inductor/compile_worker"]
    child = subprocess.Popen(arguments, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert children_ns() == before_ns
    child.communicate()
