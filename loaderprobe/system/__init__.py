"""What Linux says: the page cache, devices, processes, threads, cores, memory."""
