#!lua
-- An update inside Redis, for comparison: SOLAR-I on the pairs of one record.
-- KEYS: weights   ARGV: n, C, documents (packed doubles), pairs (packed 16-bit rows)
local n, C = tonumber(ARGV[1]), tonumber(ARGV[2])
local packed = redis.call('GET', KEYS[1])
local w, at = {}, 1
for k = 1, n do w[k], at = struct.unpack('<d', packed, at) end
local documents, rows, from = {}, #ARGV[3] / 8 / n, 1
for d = 1, rows do
  local row = {}
  for k = 1, n do row[k], from = struct.unpack('<d', ARGV[3], from) end
  documents[d] = row
end
local x = {}
for pair = 1, #ARGV[4], 4 do
  local i, j = struct.unpack('<H<H', ARGV[4], pair)
  local a, b = documents[i + 1], documents[j + 1]
  local margin, norm = 0, 0
  for k = 1, n do
    local gap = a[k] - b[k]
    x[k] = gap
    margin = margin + w[k] * gap
    norm = norm + gap * gap
  end
  local loss = 1 - margin
  if loss > 0 and norm > 0 then
    local step = loss / (norm + 1 / (2 * C))
    for k = 1, n do w[k] = w[k] + step * x[k] end
  end
end
local parts = {}
for k = 1, n do parts[k] = struct.pack('<d', w[k]) end
redis.call('SET', KEYS[1], table.concat(parts))
