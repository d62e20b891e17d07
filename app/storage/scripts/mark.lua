#!lua flags=allow-oom
-- A mark, for WAIT to have something to wait for. A full server takes it, too: a model may go.
-- KEYS: mark   ARGV: for how long in ms
return redis.call('SET', KEYS[1], 1, 'PX', ARGV[1])
