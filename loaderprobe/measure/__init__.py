"""One configuration measured in a child process, and the sweep over many."""
