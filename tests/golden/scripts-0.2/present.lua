#!lua flags=allow-oom
-- Register a running learner and remove expired ones.
-- KEYS: learners   ARGV: its name, TTL in ms
-- Returns the number of learners.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], 0, now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
return redis.call('ZCARD', KEYS[1])
