"""The base of every mode that listens to the operators of a step."""

from __future__ import annotations

import sys
from types import MethodType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class ListeningMode(TorchDispatchMode):  # type: ignore[misc]  # torch is not followed
    """A dispatch mode that does not load torch's compiler only to be left alone by it.

    torch wraps the handler of each mode so that the compiler skips it, and loads the compiler for that at the handler's
    first call, which takes a second. Where the compiler is not loaded nothing can compile the handler, and it is called
    as it was written.
    """

    def __enter__(self) -> Any:
        """Listen, until left."""
        written = getattr(type(self).__torch_dispatch__, "__wrapped__", None)
        if written is not None and "torch._dynamo" not in sys.modules:
            self.__dict__["__torch_dispatch__"] = MethodType(written, self)
        return super().__enter__()

    def __exit__(self, *raised: object) -> Any:
        """Stop listening."""
        self.__dict__.pop("__torch_dispatch__", None)
        return super().__exit__(*raised)
