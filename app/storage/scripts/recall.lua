#!lua flags=no-writes
-- Return the impressions of the first requests, with their accumulated feedback.
-- KEYS: imp:<request> …   ARGV: size limit of the answer in bytes; the first request always fits
-- Returns for each returned request {impression, feedback}; nil where there is none.
local found, size, most = {}, 0, tonumber(ARGV[1])
for i, key in ipairs(KEYS) do
  local one = redis.call('HMGET', key, 'i', 'a')
  size = size + #(one[1] or '') + #(one[2] or '')
  if i > 1 and size > most then break end
  found[i] = one
end
return found
