#!lua flags=allow-oom
-- Delete a follower. Its epoch key stays, so old keys never belong to a new follower.
-- KEYS: followers state lease snaps, then all its versions: snap:…   ARGV: name, epoch
-- Returns 1 deleted, 0 no such follower, -1 its versions have changed.
if (redis.call('HGET', KEYS[2], 'epoch') or '') ~= ARGV[2] then return 0 end
local kept = redis.call('ZRANGE', KEYS[4], 0, -1)
if #kept ~= #KEYS - 4 then return -1 end
for i, member in ipairs(kept) do
  if string.match(KEYS[4 + i], ':([^:]+)$') ~= member then return -1 end
end
local deleted = redis.call('DEL', KEYS[2])
redis.call('DEL', unpack(KEYS, 3))
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('PUBLISH', 'solar:changed', string.match(KEYS[1], '{(.*)}') .. '/' .. ARGV[1])
return deleted
