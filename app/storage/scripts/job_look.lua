#!lua flags=no-writes
-- A job, and who trains its model: both as of one moment.
-- KEYS: job:<id> training
-- Returns the job's fields and values in turn, and who trains.
return {redis.call('HGETALL', KEYS[1]), redis.call('GET', KEYS[2])}
