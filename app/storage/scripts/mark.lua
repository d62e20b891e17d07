#!lua flags=allow-oom
-- Write a mark for WAIT; also on a full server, because a deletion needs it.
-- KEYS: mark   ARGV: TTL in ms
return redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
