#!lua flags=allow-oom
-- A model ends, if it still lives in this epoch. Its epoch stays, so that old keys never answer for a new one.
-- KEYS: state seq log lease snaps snap:…   ARGV: epoch
-- Returns 1 gone, 0 not there, -1 there are other versions by now.
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
local kept = redis.call('ZRANGE', KEYS[5], 0, -1)
if #kept ~= #KEYS - 5 then return -1 end
for i, seq in ipairs(kept) do
  if string.match(KEYS[5 + i], '(%d+)$') ~= seq then return -1 end
end
redis.call('DEL', unpack(KEYS))
return 1
