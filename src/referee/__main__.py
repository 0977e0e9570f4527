"""``python -m referee``: the same as the command ``referee``.

Python puts the working directory in front of all modules here, and not there: a ``random.py`` or ``queue.py`` of the
user's would be loaded in place of the standard library's. A target's neighbours are found when the target is loaded.
"""

import os
import sys


def leave_working_directory() -> None:
    """Take the working directory from the front of the modules' path."""
    try:
        first = ("", os.getcwd())
    except OSError:  # it has been deleted
        first = ("", "")
    if not sys.flags.safe_path and sys.path and sys.path[0] in first:
        del sys.path[0]


if __name__ == "__main__":
    leave_working_directory()

    from referee.cli.main import entry

    entry()
