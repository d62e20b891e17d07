#!lua flags=no-writes
-- Count the running learners.
-- KEYS: learners
-- Returns the number of learners whose registration has not expired.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return #redis.call('ZRANGE', KEYS[1], now, '+inf', 'BYSCORE')
