#!lua
-- Keep the committed state of a model as a named version.
-- KEYS: state keeps keep:<epoch>-name-<name>
-- ARGV: epoch, most named versions, id of this call
-- Returns the seq of the version, -1 no such model, -2 the name is taken, -3 too many named versions.
local names = {'epoch', 'fence', 'seq', 'chain', 'w', 'spread', 'sums', 'meta'}
local state = redis.call('HMGET', KEYS[1], unpack(names))
if state[1] ~= ARGV[1] then return -1 end
local kept = redis.call('HMGET', KEYS[3], 'seq', 'call')
if kept[1] then return kept[2] == ARGV[3] and tonumber(kept[1]) or -2 end  -- the same call: resent
local named, prefix = 0, ARGV[1] .. '-name-'
for _, member in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  if string.sub(member, 1, #prefix) == prefix then named = named + 1 end
end
if named >= tonumber(ARGV[2]) then return -3 end
for i, name in ipairs(names) do
  if state[i] then redis.call('HSET', KEYS[3], name, state[i]) end
end
local time = redis.call('TIME')[1] .. '000'
redis.call('HSET', KEYS[3], 'reason', 'named', 'time', time, 'call', ARGV[3])
redis.call('ZADD', KEYS[2], state[3], string.match(KEYS[3], ':([^:]+)$'))
return tonumber(state[3])
