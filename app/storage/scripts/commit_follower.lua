#!lua flags=allow-oom
-- Commit a learner's new state of a follower by compare-and-set, as commit.lua. It never passes the
-- committed state of its leader, and has the leader's chain at the leader's seq. The new seq may be
-- an earlier one: a state that is damaged, or of other records, goes back to one of its versions.
-- KEYS: state fence log followers, leader's state, snaps, snap:<new seq> (if no version is kept:
--       state), then versions to drop: snap:<old> …
-- ARGV: epoch, fence, base seq, base chain, new seq, new chain, w, spread, sums, meta, reason to keep
--       a version ('': none is kept), '1' to rewrite the committed state, name, then for some of the
--       applied records: seq, SHA-1 of the record, its time
-- Returns 0 committed, 1 already committed (resent), 2 another base state, 3 another fencing token,
-- 4 the log or the leader has other records, 5 the follower is stalled.
local now = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'chain')
local done = now[1] == ARGV[1] and now[2] == ARGV[5] and now[3] == ARGV[6]
if done and ARGV[12] ~= '1' then return 1 end
if now[1] ~= ARGV[1] or now[2] ~= ARGV[3] or now[3] ~= ARGV[4] then return 2 end
if redis.call('GET', KEYS[2]) ~= ARGV[2] then return 3 end
if redis.call('HGET', KEYS[4], ARGV[13]) ~= '' then return 5 end
local leader = redis.call('HMGET', KEYS[5], 'seq', 'chain')
local ahead = tonumber(ARGV[5]) - (tonumber(leader[1] or '') or -1)
if ahead > 0 or (ahead == 0 and leader[2] ~= ARGV[6]) then return 4 end
for i = 14, #ARGV, 3 do
  local found = redis.call('XRANGE', KEYS[3], ARGV[i] .. '-0', ARGV[i] .. '-0')[1]
  if not found or redis.sha1hex(found[2][2]) ~= ARGV[i + 1] or found[2][4] ~= ARGV[i + 2] then
    return 4
  end
end
local function member(key) return string.match(key, ':([^:]+)$') end
local targets = {KEYS[1]}
if ARGV[11] ~= '' then
  targets[2] = KEYS[7]
  redis.call('ZADD', KEYS[6], ARGV[5], ARGV[5])
  redis.call('HSET', KEYS[7], 'reason', ARGV[11], 'time', redis.call('TIME')[1] .. '000')
end
for _, key in ipairs(targets) do
  redis.call('HSET', key, 'epoch', ARGV[1], 'fence', ARGV[2], 'seq', ARGV[5], 'chain', ARGV[6],
    'w', ARGV[7], 'spread', ARGV[8], 'sums', ARGV[9], 'meta', ARGV[10], 'part', '')
end
for i = 8, #KEYS do
  redis.call('DEL', KEYS[i])
  redis.call('ZREM', KEYS[6], member(KEYS[i]))
end
redis.call('PUBLISH', 'solar:changed',
  string.match(KEYS[1], '{(.*)}') .. '/' .. ARGV[13] .. ' ' .. ARGV[5])
return 0
