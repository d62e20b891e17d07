#!lua flags=no-writes
-- Return the impressions of requests, with their accumulated feedback.
-- KEYS: imp:<request> …   ARGV: size limit of the answer in bytes, whether memory is reserved (1 or 0)
-- Returns {impression, feedback, tenant} for each request; nil where there is none. Beyond the limit: with
-- reserved memory nothing (the first request always fits), otherwise the size of each request.
local found, size, most, reserved = {}, 0, tonumber(ARGV[1]), tonumber(ARGV[2])
for i, key in ipairs(KEYS) do
  local one = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0) or 0  -- HSTRLEN needs one more right
  if i <= reserved or size + one <= most then
    size = size + one
    found[i] = redis.call('HMGET', key, 'i', 'a', 't')
  elseif reserved == 1 then
    break
  else
    found[i] = one
  end
end
return found
