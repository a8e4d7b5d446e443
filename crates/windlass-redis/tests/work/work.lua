local redis = (function()
  local real, work = redis, 0
  local function size(value)
    if type(value) == 'string' then return 1 + #value / 4096 end
    if type(value) ~= 'table' then return 1 end
    local sum = 0
    for _, item in ipairs(value) do sum = sum + size(item) end
    return sum
  end
  local function add(more)
    work = work + more
    if work > WORK_MAX then error('WORK: more than ' .. WORK_MAX .. ' in one script') end
  end
  return {
    call = function(...)
      add(1 + size({ ... }))
      local answer = real.call(...)
      add(size(answer))
      return answer
    end,
  }
end)()
