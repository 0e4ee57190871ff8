"""Infrastructure without mathematics: threads, processes, caches, checkpoints and atomic writes."""
