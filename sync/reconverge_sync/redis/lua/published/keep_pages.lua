-- Sets when pages of contracts are deleted. Returns the positions, from 0, of the pages that do not exist.
-- KEYS the pages  ARGV 1 milliseconds until they are deleted
local missing = {}
for position, key in ipairs(KEYS) do
  if redis.call('PEXPIRE', key, ARGV[1]) == 0 then missing[#missing + 1] = position - 1 end
end
return missing
