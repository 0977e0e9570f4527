"""What does a recorded trace hold? Reader → columns → links and steps. Integer nanoseconds throughout; no torch."""
