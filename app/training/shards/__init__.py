"""Training on shards: files of judged queries that need not fit into memory.

    urls.py         which URLs a job may name
    extra.py        the message if the extra `cluster` is not installed
    files.py        shards as files of any file system, with a stamp that shows changes
    parquet.py      rows of parquet files
    text.py         rows of LETOR/SVMlight text
    blocks.py       rows in blocks of whole queries
    parts.py        what is computed for one shard: pure functions
    cache.py        decoded rows in bounded memory
    engines.py      who computes the parts, and the sums over all of them
    memory.py       how much memory the workers may use
    dispatch.py     which worker computes which part next
    heartbeats.py   which workers of a cluster go on
    versions.py     what a cluster and its client must have in common
    checkpoint.py   the weights of a training that is interrupted
    training.py     the training itself

`app/training/cluster.py` computes the parts on a Dask cluster; no other module imports dask.
"""
