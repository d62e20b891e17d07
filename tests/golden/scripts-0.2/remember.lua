#!lua
-- Store impressions. A new impression of a request drops its feedback; a resent one keeps it.
-- KEYS: imp:<request> …   ARGV: TTL in ms, then the impression of each
for i, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'i') ~= ARGV[i + 1] then
    redis.call('DEL', key)
    redis.call('HSET', key, 'i', ARGV[i + 1])
  end
  redis.call('PEXPIRE', key, ARGV[1])
end
return #KEYS
