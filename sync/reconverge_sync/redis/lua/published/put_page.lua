-- Stores a page (a part of the contracts).
-- KEYS 1 the page  ARGV 1 payload 2 milliseconds until it is deleted
redis.call('HSET', KEYS[1], 'payload', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
