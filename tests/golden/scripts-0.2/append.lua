#!lua
-- Append all events of one post to the log, each once; or none, if one must be rebuilt.
-- KEYS: state seq log, then for each event: d:<event> imp:<request> (without request: state)
-- ARGV: epoch, backlog limit, TTL of the dedupe keys in ms, time in ms,
--       required seq of the last record ('': any), '1' if a client waits, then for each event:
--       digest of the body, record, expected and new accumulated feedback ('' without request),
--       SHA-1 of the impression that the record builds on ('': any)
-- Returns a code for the post and then, for each event, {code, seq}.
-- Post: 0 success, 1 no such model, 2 backlog limit reached, 3 another last record, 4 the feedback
-- or impression has changed; codes other than 0 write nothing. Event: 0 appended, 1 repeated,
-- 2 same id with another body, 3 no such impression.
local model = redis.call('HMGET', KEYS[1], 'epoch', 'seq')
if model[1] ~= ARGV[1] then return {1} end
local start = tonumber(redis.call('GET', KEYS[2]))
local tail, answer, fresh = start, {0}, {}
local known, so_far = {}, {}  -- event ids and accumulated feedback of this post

local ids, count = {}, (#KEYS - 3) / 2
for i = 1, count do ids[i] = KEYS[2 + 2 * i] end
local stored = redis.call('MGET', unpack(ids))
for i = 1, count do
  local seen, request = ids[i], KEYS[3 + 2 * i]
  local at = 5 * i + 1
  local digest, expected, new, list = ARGV[at + 1], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local before = known[seen] or stored[i]
  if before then
    local seq, body = string.match(before, '^(%d+):(.*)$')
    answer[i + 1] = {body == digest and 1 or 2, tonumber(seq)}
  elseif new ~= '' and redis.call('EXISTS', request) == 0 then
    answer[i + 1] = {3, 0}
  elseif new ~= '' and (so_far[request] or redis.call('HGET', request, 'a') or '') ~= expected then
    return {4}
  elseif list ~= '' and redis.sha1hex(redis.call('HGET', request, 'i')) ~= list then
    return {4}
  else
    tail = tail + 1
    known[seen] = tail .. ':' .. digest
    if new ~= '' then so_far[request] = new end
    answer[i + 1] = {0, tail}
    fresh[#fresh + 1] = i
  end
end
if #fresh == 0 then return answer end
if tail - tonumber(model[2]) > tonumber(ARGV[2]) then return {2} end
if ARGV[5] ~= '' and start ~= tonumber(ARGV[5]) then return {3} end

local waits = ARGV[6] == '1' and {'w', '1'} or {}
for _, i in ipairs(fresh) do
  local at, seq = 5 * i + 1, answer[i + 1][2]
  redis.call('XADD', KEYS[3], seq .. '-0', 'r', ARGV[at + 2], 't', ARGV[4], unpack(waits))
  redis.call('SET', ids[i], known[ids[i]], 'PX', ARGV[3])
  if ARGV[at + 4] ~= '' then redis.call('HSET', KEYS[3 + 2 * i], 'a', ARGV[at + 4]) end
end
redis.call('SET', KEYS[2], tail)
if start == tonumber(model[2]) then  -- else a learner has earlier records to apply
  redis.call('PUBLISH', 'solar:appended', string.match(KEYS[1], '{(.*)}'))
end
return answer
