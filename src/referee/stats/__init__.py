"""Arrays of samples → estimates: summaries, intervals, steady state, paired comparison, law fit. numpy only."""
