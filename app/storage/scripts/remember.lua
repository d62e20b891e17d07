#!lua
-- Store impressions. A new impression of a request drops its feedback; a resent one keeps it.
-- A request belongs to the tenant of its impression; one of an older release belongs to no tenant.
-- KEYS: imp:<request> …   ARGV: TTL in ms, then for each: tenant, impression
-- Returns for each: 1 stored, 0 the request belongs to another tenant.
local stored = {}
for i, key in ipairs(KEYS) do
  local tenant, shown = ARGV[2 * i], ARGV[2 * i + 1]
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
return stored
