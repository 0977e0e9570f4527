"""What ran, on one timeline? The schedule as a pure state machine, and the adapter to torch.profiler."""
