#!lua
-- Store impressions. A new impression of a request drops its feedback; a resent one keeps it.
-- A request belongs to the tenant of its impression; one of an older release belongs to no tenant.
-- One of the requests may be noted in the list of recent requests. A user without the rights to its
-- commands (`pcall`) has no such list, and stores impressions all the same.
-- After the deadline nothing is stored: the answer to the caller says so.
-- KEYS: recent:<epoch>, then imp:<epoch>:<request> …
-- ARGV: TTL in ms, number of the impression to note (0: none), deadline in ms since 1970 by the
-- server's clock (0: none), then for each: tenant, impression
-- Returns the server's clock in ms since 1970, then for each: 1 stored, 2 the request had this
-- impression before, 0 the request belongs to another tenant. Only the clock after the deadline.
local GIVEN, MOST_RECENT = 3, 100
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local deadline = tonumber(ARGV[3])
if deadline > 0 and now > deadline then
  return {now}
end
local stored = {}
for i = 1, #KEYS - 1 do
  local key, tenant, shown = KEYS[i + 1], ARGV[GIVEN + 2 * i - 1], ARGV[GIVEN + 2 * i]
  local before = redis.call('HMGET', key, 'i', 't', 'u')
  if before[2] and before[2] ~= tenant then
    stored[i] = 0
  else
    if before[1] == shown then  -- a list that was clicked may live longer
      redis.call('PEXPIRE', key, ARGV[1], 'GT')
      if before[3] and tonumber(before[3]) < now + ARGV[1] then
        redis.call('HSET', key, 'u', string.format('%.0f', now + ARGV[1]))
      end
      stored[i] = 2
    else
      redis.call('DEL', key)
      redis.call('HSET', key, 'i', shown, 't', tenant)
      redis.call('PEXPIRE', key, ARGV[1])
      stored[i] = 1
    end
  end
end
local noted = tonumber(ARGV[2])
if (stored[noted] or 0) > 0 then
  -- 'imp:<epoch>:' is two characters shorter than 'recent:<epoch>', which the list's name ends with.
  local request = string.sub(KEYS[noted + 1], #KEYS[1] - 1)
  if not redis.pcall('LTRIM', KEYS[1], 0, MOST_RECENT - 2).err then
    redis.pcall('LPUSH', KEYS[1], request)
    redis.call('PEXPIRE', KEYS[1], ARGV[1])
  end
end
table.insert(stored, 1, now)
return stored
