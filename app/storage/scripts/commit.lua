#!lua flags=allow-oom
-- Commit a learner's new state by compare-and-set on the base state and the fencing token.
-- The new seq must not exceed the log: after a version rollback (a failover), a resent commit would
-- skip the records that come next (I3).
-- KEYS: state fence log, then for a version: snaps snap:<new seq>, or for an hourly one: keeps
--       keep:<epoch>-hour-<new seq> (if no version is kept: snaps state), then seq watched
--       history:<epoch>:10s history:<epoch>:10m history:<epoch>:weights followers, then snaps of the
--       followers that the caller knows, then versions of the same kind to drop: snap:<old> … or
--       keep:<epoch>-hour-<old> …
-- ARGV: epoch, fence, base seq, base chain, new seq, new chain, w, spread, sums, meta,
--       reason to keep a version ('': none is kept), seq up to which the log is trimmed (0: no trimming),
--       '1' to rewrite the committed state (a damaged one, or to keep it as a version),
--       work of all records up to the new seq ('': unknown),
--       the time of the commit (13 digits, ms since 1970), a point of the history ('': none), its
--       weights ('': none), number and names of the followers that the caller knows, then for some of the applied records: seq, SHA-1 of the record, its time
-- Returns 0 committed, 5 committed, and somebody watches the model, 1 already committed (resent), 2 another base state, 3 another fencing token,
-- 4 the log has other records: a version rollback.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'chain')
local done = now[1] == ARGV[1] and now[2] == ARGV[5] and now[3] == ARGV[6]
if done and (ARGV[13] ~= '1' or ARGV[3] ~= ARGV[5]) then return 1 end
if now[1] ~= ARGV[1] or now[2] ~= ARGV[3] or now[3] ~= ARGV[4] then return 2 end
if tonumber(ARGV[5]) > tonumber(redis.call('GET', KEYS[6]) or -1) then return 2 end
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 3 end
local known = tonumber(ARGV[18])
for i = 19 + known, #ARGV, 3 do
  local found = redis.call('XRANGE', KEYS[3], ARGV[i] .. '-0', ARGV[i] .. '-0')[1]
  if not found or redis.sha1hex(found[2][2]) ~= ARGV[i + 1] or found[2][4] ~= ARGV[i + 2] then
    return 4
  end
end
local function member(key) return string.match(key, ':([^:]+)$') end
local targets = {KEYS[1]}
if ARGV[11] ~= '' then
  targets[2] = KEYS[5]
  redis.call('ZADD', KEYS[4], ARGV[5], member(KEYS[5]))
  redis.call('HSET', KEYS[5], 'reason', ARGV[11], 'time', redis.call('TIME')[1] .. '000')
end
for _, key in ipairs(targets) do
  redis.call('HSET', key, 'epoch', ARGV[1], 'fence', ARGV[2], 'seq', ARGV[5], 'chain', ARGV[6],
    'w', ARGV[7], 'spread', ARGV[8], 'sums', ARGV[9], 'meta', ARGV[10], 'part', '')
end
if ARGV[3] ~= ARGV[5] then redis.call('HSET', KEYS[1], 'worked', ARGV[5] .. ':' .. ARGV[14]) end
for i = 12 + known, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('ZREM', KEYS[4], member(KEYS[i]))
end
-- Trim no further than the oldest version of a follower, unless it is stalled; not at all if there are
-- other followers than the caller knows: their versions are not among the keys.
local tag = string.match(KEYS[1], '{(.*)}')
local found, followers, count = redis.call('HGETALL', KEYS[11]), {}, 0
for i = 1, #found, 2 do followers[found[i]], count = found[i + 1], count + 1 end
local trim = count == known and tonumber(ARGV[12]) or 0
for i = 1, known do
  local stalled = followers[ARGV[18 + i]]
  if not stalled then trim = 0 end
  if stalled == '' then
    trim = math.min(trim, tonumber(redis.call('ZRANGE', KEYS[11 + i], 0, 0)[1] or trim))
  end
end
if trim > 0 then redis.call('XTRIM', KEYS[3], 'MINID', string.format('%.0f-0', trim + 1)) end
for name, stalled in pairs(followers) do
  if stalled == '' then redis.call('PUBLISH', 'solar:appended', tag .. '/' .. name) end
end
-- Each row of the history starts with its time. A ring has at most one row for an interval. A user
-- without the rights to these commands (`pcall`) has no history, and learns all the same.
local DAY = 86400000
local function note(key, row, interval, most)
  if row == '' then return end
  local last = redis.pcall('LINDEX', key, -1)
  if type(last) == 'table' then return end
  local time = last and tonumber(string.sub(last, 1, 13)) or -1
  if math.floor(time / interval) ~= math.floor(ARGV[15] / interval) then
    if redis.pcall('LTRIM', key, 1 - most, -1).err then return end  -- a ring would have no end
    redis.pcall('RPUSH', key, ARGV[15] .. row)
  end
end
note(KEYS[8], ARGV[16], 10000, 360)
note(KEYS[9], ARGV[16], 600000, 144)
note(KEYS[10], ARGV[17], 3600000, 25)
if ARGV[16] ~= '' then
  for i = 8, 10 do redis.call('PEXPIRE', KEYS[i], DAY) end
end
redis.call('PUBLISH', 'solar:changed', tag .. ' ' .. ARGV[5])
return redis.call('EXISTS', KEYS[7]) == 1 and 5 or 0
