local redis = (function()
  local real, known = redis, {}
  for _, key in ipairs(KEYS) do known[key] = true end
  local FIRST, NONE, BELL = 1, 2, 3
  local commands = {
    HGET = FIRST, HMGET = FIRST, HSET = FIRST, HDEL = FIRST, HEXISTS = FIRST, HSTRLEN = FIRST, HLEN = FIRST, HGETALL = FIRST, HSCAN = FIRST,
    ZADD = FIRST, ZREM = FIRST, ZCARD = FIRST, ZRANGE = FIRST, ZRANGEBYLEX = FIRST, ZREMRANGEBYLEX = FIRST, ZREVRANGEBYLEX = FIRST,
    ZRANGEBYSCORE = FIRST, ZLEXCOUNT = FIRST, XADD = FIRST, XRANGE = FIRST, XTRIM = FIRST, LINDEX = FIRST, LPOP = FIRST, LSET = FIRST, RPUSH = FIRST,
    GET = FIRST, SET = FIRST,
    TIME = NONE, PUBLISH = BELL, SPUBLISH = BELL,
  }
  local function checked(run)
    return function(command, key, ...)
      local shape = commands[command]
      if not shape then error('GUARD: the command ' .. tostring(command) .. ' is not one that scripts are known to use') end
      if shape == FIRST and not known[key] then
        error('GUARD: ' .. command .. ' of ' .. tostring(key) .. ', which is not declared')
      end
      if shape == BELL and string.sub(key, 1, #ARGV[2]) ~= ARGV[2] then
        error('GUARD: ' .. command .. ' to ' .. tostring(key) .. ', which is no bell of this store')
      end
      if shape == NONE then return run(command) end
      return run(command, key, ...)
    end
  end
  return { call = checked(real.call), pcall = checked(real.pcall) }
end)()
