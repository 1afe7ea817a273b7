-- A request for each of a thousand keys, one after the other; wrk asks this thread for the next one.
local requests, number = {}, 0

init = function()
   for each = 1, 1000 do
      wrk.headers["x-api-key"] = string.format("customer-%04d", each)
      requests[each] = wrk.format()
   end
end

request = function()
   number = number % 1000 + 1
   return requests[number]
end
