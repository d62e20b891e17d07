#!lua flags=no-writes
-- Return the impressions of the first requests, with their accumulated feedback.
-- KEYS: imp:<request> …   ARGV: size limit of the answer in bytes; the first request always fits
-- Returns for each returned request {impression, feedback}; nil where there is none.
local found, size, most = {}, 0, tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  size = size + redis.call('HSTRLEN', key, 'i') + redis.call('HSTRLEN', key, 'a')
  if i > 1 and size > most then break end
  found[i] = redis.call('HMGET', key, 'i', 'a')
end
return found
