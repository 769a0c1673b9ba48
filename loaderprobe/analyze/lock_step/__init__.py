"""What it costs ranks to take each step together: pure functions on the times of measured batches."""
