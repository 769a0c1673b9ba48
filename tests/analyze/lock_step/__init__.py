"""The replay of ranks in lock-step."""
