#!lua flags=no-writes
-- Count the running learners.
-- KEYS: learners
-- Returns the number of learners whose registration has not expired and is not void (see present).
local time = redis.call('TIME')
local now, count = time[1] * 1000 + math.floor(time[2] / 1000), 0
local all = redis.call('ZRANGE', KEYS[1], now, '+inf', 'BYSCORE', 'WITHSCORES')
for i = 1, #all, 2 do
  local length = string.match(all[i], ':(%d+)$') or 60000
  if all[i + 1] - now <= length + 1000 then count = count + 1 end
end
return count
