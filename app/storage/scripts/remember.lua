#!lua
-- What was shown for some requests. A request shown anew begins anew; sent twice, it stays as it is.
-- KEYS: imp:<request> …   ARGV: TTL in ms, then what was shown for each
for i, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'i') ~= ARGV[i + 1] then
    redis.call('DEL', key)
    redis.call('HSET', key, 'i', ARGV[i + 1])
  end
  redis.call('PEXPIRE', key, ARGV[1])
end
return #KEYS
