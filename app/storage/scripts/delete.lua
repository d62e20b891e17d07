#!lua flags=allow-oom
-- Delete a model of this epoch. The epoch key stays, so old keys never belong to a new model.
-- KEYS: state seq log lease snaps keeps watched samples recent:<epoch> history:<epoch>:10s
--       history:<epoch>:10m history:<epoch>:weights followers, then all versions: snap:… keep:…   ARGV: epoch
-- Returns 1 deleted, 0 no such model, -1 the kept versions have changed, -2 it has followers.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
if redis.call('EXISTS', KEYS[13]) == 1 then return -2 end
local kept = redis.call('ZRANGE', KEYS[5], 0, -1)
for _, member in ipairs(redis.call('ZRANGE', KEYS[6], 0, -1)) do kept[#kept + 1] = member end
if #kept ~= #KEYS - 13 then return -1 end
for i, member in ipairs(kept) do
  if string.match(KEYS[13 + i], ':([^:]+)$') ~= member then return -1 end
end
redis.call('DEL', unpack(KEYS))
redis.call('PUBLISH', 'solar:changed', string.match(KEYS[1], '{(.*)}'))
return 1
