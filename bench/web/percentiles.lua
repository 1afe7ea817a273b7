-- Prints the latency that one request in a thousand exceeds, in microseconds, which wrk itself does not.

done = function(_, latency)
   io.write(string.format("p99.9 %dus\n", latency:percentile(99.9)))
end
