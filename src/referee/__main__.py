"""``python -m referee``: the same as the command ``referee``."""

from referee.cli.main import entry

entry()
