"""Referee: an honest referee for PyTorch performance.

``import referee`` loads neither torch nor numpy; names below are resolved on first use.
"""

__version__ = "0.1.0"
