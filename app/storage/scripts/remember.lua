#!lua
-- Store impressions. A new impression of a request drops its feedback; a resent one keeps it.
-- A request belongs to the tenant of its impression; one of an older release belongs to no tenant.
-- One of the requests may be noted in the list of recent requests. A user without the rights to its
-- commands (`pcall`) has no such list, and stores impressions all the same.
-- KEYS: recent:<epoch>, then imp:<epoch>:<request> …
-- ARGV: TTL in ms, number of the impression to note (0: none), then for each: tenant, impression
-- Returns for each: 1 stored, 0 the request belongs to another tenant.
local GIVEN, MOST_RECENT = 2, 100
local stored = {}
for i = 1, #KEYS - 1 do
  local key, tenant, shown = KEYS[i + 1], ARGV[GIVEN + 2 * i - 1], ARGV[GIVEN + 2 * i]
  local before = redis.call('HMGET', key, 'i', 't')
  if before[2] and before[2] ~= tenant then
    stored[i] = 0
  else
    if before[1] ~= shown then
      redis.call('DEL', key)
      redis.call('HSET', key, 'i', shown, 't', tenant)
    end
    redis.call('PEXPIRE', key, ARGV[1])
    stored[i] = 1
  end
end
local noted = tonumber(ARGV[2])
if stored[noted] == 1 then
  -- 'imp:<epoch>:' is two characters shorter than 'recent:<epoch>', which the list's name ends with.
  local request = string.sub(KEYS[noted + 1], #KEYS[1] - 1)
  if not redis.pcall('LTRIM', KEYS[1], 0, MOST_RECENT - 2).err then
    redis.pcall('LPUSH', KEYS[1], request)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
  end
end
return stored
