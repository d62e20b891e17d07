#!lua flags=no-writes
-- Read a job and the training process of its model atomically.
-- KEYS: job:<id> training
-- Returns the job's fields and values in turn, and the training process.
return {redis.call('HGETALL', KEYS[1]), redis.call('GET', KEYS[2])}
