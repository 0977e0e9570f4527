"""What would change? Edits of a trace's dependency graph, and the replay that answers them."""
