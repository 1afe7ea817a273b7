-- Returns the secret by which all nodes hash addresses: the first that was proposed, or ''.
-- `MemoryUsage.address_secret` is its twin.
-- KEYS 1 where it is kept  ARGV 1 the proposed one, or nothing 2 milliseconds to keep it
local secret, proposed = redis.call('HGET', KEYS[1], 's'), ARGV[1]
if proposed ~= '' then
  if not secret then
    secret = proposed
    redis.call('HSET', KEYS[1], 's', secret)
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return secret or ''
