-- The least that a merge can cost a Redis which keeps it in a script: for each key its cell and the node's entry are read,
-- unpacked, packed and written, and a row comes in and another goes out. Nothing is worked out.
local cells = #KEYS
local answers = {}
for position = 1, cells do answers[position] = false end
for position = 1, cells do
  local key = KEYS[position]
  local epoch, _, _, current = struct.unpack('<i8i8I4i4I4I4I4I4I4I4I4I4I4', ARGV[1], (position - 1) * 60 + 1)
  local found = redis.call('HMGET', key, 'g', ARGV[2])
  local cell = found[1] and { cmsgpack.unpack(found[1]) } or { epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  local entry = found[2] and { cmsgpack.unpack(found[2]) } or { epoch, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
  cell[2], entry[2] = cell[2] + current, current
  redis.call('HSET', key, 'g', cmsgpack.pack(unpack(cell)), ARGV[2], cmsgpack.pack(unpack(entry)))
  answers[position] = struct.pack('<i8i4i4i4i4i4i4i4i4i4i4i4i4i4i4i8', epoch, 0, 0, 0, 0, 0, 0, cell[2], 0, 0, 0, 0, 1, 0, 0, 0)
end
return table.concat(answers)
