"""What Linux reports: the page cache, devices, processes, threads, cores, memory."""
