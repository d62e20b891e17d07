"""How much memory the workers of a cluster have, and what of it their caches get."""

import resource
from math import inf

import psutil

#: A worker may fill this share of its memory, less what its tasks need; at 0.8 Dask pauses it.
WORKER_SHARE, TASK_BYTES = 0.6, 100_000_000
#: Arrow's allocator takes this much address space with the first shard, which counts as data.
ARROW_BYTES = 1_200_000_000
#: Least memory of a worker of `local`; N workers of `local:N` may have less.
LOCAL_BYTES = 400_000_000


def cache_bytes(limit: int, threads: int) -> int:
    """Return the bytes for the cache of a worker with `limit` bytes of memory."""
    used = psutil.Process().memory_info()
    data = getattr(used, "data", used.rss)  # only Linux tells
    rooms = (WORKER_SHARE * limit - used.rss, WORKER_SHARE * data_limit() - data - ARROW_BYTES)
    return max(0, int(min(rooms)) - threads * TASK_BYTES)


def local_workers(cores: int) -> int:
    """Return the number of workers of `local`: one a core, if there is memory for them.

    >>> local_workers(1)
    1
    """
    return max(1, int(min(cores, data_limit() // LOCAL_BYTES)))


def local_memory(n: int, cores: int, memory: int) -> int:
    """Return the memory of each of n workers: they share that of the machine, or of the job."""
    return int(min(memory // max(n, cores), data_limit() // n))


def data_limit() -> float:
    """Return the bytes of data of this process and its children; a job has its own limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return inf if limit == resource.RLIM_INFINITY else limit
