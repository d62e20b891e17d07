#!lua flags=allow-oom
-- Delete a named version.
-- KEYS: keeps keep:<epoch>-name-<name>
-- Returns 1 deleted, 0 no such version.
redis.call('ZREM', KEYS[1], string.match(KEYS[2], ':([^:]+)$'))
return redis.call('DEL', KEYS[2])
