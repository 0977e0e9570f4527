"""Does the fix pay? Applies fixes to a live step, holds the outputs against eager, and measures side by side."""
