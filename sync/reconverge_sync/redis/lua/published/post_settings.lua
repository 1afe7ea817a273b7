-- Publishes settings.
-- KEYS 1 the settings  ARGV 1 payload 2 mark 3 milliseconds until they are deleted
redis.call('HSET', KEYS[1], 'payload', ARGV[1], 'mark', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
