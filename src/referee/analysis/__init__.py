"""What does it mean? One question per file, pure functions from traces and records to figures and verdicts."""
