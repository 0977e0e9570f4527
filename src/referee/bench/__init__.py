"""How long does it take? The plan, the only timing loop, stopping rules, guards, the sweep."""
