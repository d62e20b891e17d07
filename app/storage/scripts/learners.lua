#!lua flags=no-writes
-- List the running learners.
-- KEYS: learners
-- Returns the names of the learners whose registration has not expired and is not void (see present).
local time = redis.call('TIME')
local now, names = time[1] * 1000 + math.floor(time[2] / 1000), {}
local all = redis.call('ZRANGE', KEYS[1], now, '+inf', 'BYSCORE', 'WITHSCORES')
for i = 1, #all, 2 do
  local length = string.match(all[i], ':(%d+)$') or 60000
  if all[i + 1] - now <= length + 1000 then names[#names + 1] = all[i] end
end
return names
