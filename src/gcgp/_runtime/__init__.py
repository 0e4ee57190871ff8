"""Infrastructure without mathematics: input arrays, errors, threads, processes, caches, checkpoints."""
