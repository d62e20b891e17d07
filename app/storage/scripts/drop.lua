#!lua flags=allow-oom
-- Delete a named version, or one that was kept for a duel.
-- KEYS: keeps, keep:<epoch>-name-<name> or keep:<epoch>-duel-<seq>   ARGV: its time, else it stays
-- ('': whatever its time is)
-- Returns 1 deleted, 0 no such version.
if ARGV[1] ~= '' and redis.call('HGET', KEYS[2], 'time') ~= ARGV[1] then return 0 end
redis.call('ZREM', KEYS[1], string.match(KEYS[2], ':([^:]+)$'))
return redis.call('DEL', KEYS[2])
