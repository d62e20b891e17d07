#!lua flags=allow-oom
-- Remove impressions that were stored after their requests were answered. One stays if a tenant has
-- sent feedback on it, or if the request has another impression by now, or the same one again.
-- KEYS: imp:<epoch>:<request> …
-- ARGV: time at which they expire, in ms since 1970 by the server's clock; then for each: tenant,
-- SHA-1 of the impression
-- Returns the number of removed impressions.
local GIVEN, ROUNDED = 1, 2  -- two clocks are rounded to ms
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local removed = 0
for i, key in ipairs(KEYS) do
  local found = redis.call('HMGET', key, 'i', 't', 'a')
  local shown, tenant, accumulated = found[1], found[2], found[3]
  if
    shown
    and tenant == ARGV[GIVEN + 2 * i - 1]
    and not accumulated
    and redis.sha1hex(shown) == ARGV[GIVEN + 2 * i]
    and now + redis.call('PTTL', key) <= ARGV[1] + ROUNDED
  then
    removed = removed + redis.call('DEL', key)
  end
end
return removed
