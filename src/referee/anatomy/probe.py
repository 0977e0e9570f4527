"""Where does the compiled probe come from? Built once per torch build and compiler, kept in the user's cache.

The compiler is called directly: torch's own extension builder insists on ninja. A first build takes about 40 s of one
core. Without a compiler, or where the build fails, :func:`load_probe` says why, and the ladder has fewer rows.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from referee.device.host import load_torch

NAME = "referee_probe"

COMPILERS = ("c++", "g++", "clang++")

_SOURCE = Path(__file__).parent / "native" / "probe.cpp"

_FLAGS = ("-std=c++20", "-O2", "-DNDEBUG", "-fPIC", "-shared", "-w", "-DFMT_HEADER_ONLY=1")
"""C++20 because torch's headers need it from 2.11 on. fmt from its headers, because torch does not export the copy that
it was built with. NDEBUG as torch itself: the dispatcher in its headers would check and trace each call (25 ns). -O2,
because what is compiled here of its headers has to be as fast as torch's own (with -O1 an iterator read 25 ns more)."""

_BUILD_LIMIT_S = 900


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The compiled module, and how it came to be."""

    module: Any
    compiler: str
    built_now: bool
    build_s: float | None


@dataclass(frozen=True, kw_only=True)
class NoProbe:
    """Why there is no compiled probe, and what would help."""

    why: str
    mend: str = "Install a C++ compiler (g++ or clang++), or name one with CXX."


_loaded: dict[str, Probe | NoProbe] = {}


def load_probe(*, announce: Callable[[str], None] = lambda _: None) -> Probe | NoProbe:
    """The probe for this torch, built if need be; loaded at most once in a process."""
    if "probe" not in _loaded:
        _loaded["probe"] = _load(announce)
    return _loaded["probe"]


def _load(announce: Callable[[str], None]) -> Probe | NoProbe:
    compiler = find_compiler()
    if compiler is None:
        wanted = os.environ.get("CXX")
        named = (
            f"CXX names {wanted}, which is not there" if wanted else f"none of {', '.join(COMPILERS)} is on the path"
        )
        return NoProbe(why=f"no C++ compiler: {named}")
    version = _version(compiler)
    library = cache_dir() / f"{NAME}-{_key(version)}" / f"{NAME}{sysconfig.get_config_var('EXT_SUFFIX') or '.so'}"
    seconds: float | None = None
    if not library.is_file():
        unwritable = _unwritable(library.parent)
        if unwritable:
            return NoProbe(why=unwritable, mend="Name a directory that can be written with REFEREE_CACHE.")
        announce("compiling the probe (once per torch build, about a minute)")
        started = os.times().elapsed
        why = _build(compiler, library)
        if why:
            return NoProbe(why=why)
        seconds = os.times().elapsed - started
    try:
        module = _import(library)
    except ImportError as error:
        return NoProbe(why=f"the compiled probe does not load: {error}")
    return Probe(module=module, compiler=version, built_now=seconds is not None, build_s=seconds)


def find_compiler() -> str | None:
    """The compiler that ``CXX`` names, else the first of :data:`COMPILERS` that is there; ``CXX=`` means none."""
    wanted = os.environ.get("CXX")
    if wanted is not None:
        return shutil.which(wanted) if wanted else None
    return next((path for path in map(shutil.which, COMPILERS) if path), None)


def cache_dir() -> Path:
    """Where compiled probes are kept: ``REFEREE_CACHE``, else the user's cache folder, else a private temporary one."""
    named = os.environ.get("REFEREE_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    folder = Path(home) if home else Path.home() / ".cache"
    folder = folder / "referee"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"referee-{os.getuid()}"
    return folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir()) / f"referee-{os.getuid()}"


def _key(compiler: str) -> str:
    """What a compiled probe depends on: our source, torch's build, Python's ABI, the compiler and the flags."""
    torch = load_torch()
    parts = (
        _SOURCE.read_text(),
        torch.__version__,
        str(torch.version.git_version),
        str(torch._C._GLIBCXX_USE_CXX11_ABI) if hasattr(torch._C, "_GLIBCXX_USE_CXX11_ABI") else "",
        sys.implementation.cache_tag or "",
        compiler,
        " ".join(_FLAGS),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _version(compiler: str) -> str:
    done = subprocess.run([compiler, "--version"], capture_output=True, text=True)
    lines = done.stdout.strip().splitlines()
    return lines[0] if lines else compiler


def _unwritable(folder: Path) -> str:
    """Why the probe cannot be kept in ``folder``, or nothing: asked before minutes of compiling."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return ""


def _build(compiler: str, library: Path) -> str:
    """Compile into a temporary file and move it into place; returns why it failed, or nothing."""
    handle, unfinished = tempfile.mkstemp(dir=library.parent, suffix=".tmp")
    os.close(handle)
    try:
        done = subprocess.run(command(compiler, unfinished), capture_output=True, text=True, timeout=_BUILD_LIMIT_S)
        if done.returncode != 0:
            first = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
            return f"the probe does not compile with {compiler}: {first.strip()}"
        os.replace(unfinished, library)
    except subprocess.TimeoutExpired:
        return f"compiling the probe took more than {_BUILD_LIMIT_S} s"
    except OSError as error:
        return f"{compiler} cannot be run: {error.strerror}"
    finally:
        Path(unfinished).unlink(missing_ok=True)
    return ""


def command(compiler: str, output: str) -> list[str]:
    """The command line that compiles the probe against the installed torch."""
    root = Path(load_torch().__file__).parent
    include = root / "include"
    return [
        compiler,
        *_FLAGS,
        f"-DTORCH_EXTENSION_NAME={NAME}",
        "-isystem",
        str(include),
        "-isystem",
        str(include / "torch" / "csrc" / "api" / "include"),
        "-isystem",
        sysconfig.get_path("include"),
        str(_SOURCE),
        "-o",
        output,
        f"-L{root / 'lib'}",
        "-ltorch_python",
        "-ltorch",
        "-ltorch_cpu",
        "-lc10",
        f"-Wl,-rpath,{root / 'lib'}",
    ]


def _import(library: Path) -> Any:
    spec = importlib.util.spec_from_file_location(NAME, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} is no extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
