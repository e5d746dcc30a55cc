-- life.lua GENERATIONS: Conway's game of life on a torus of 256 x 256 cells.
local generations = tonumber(arg[1])
local n = 256
local seed = 42
local function random()
  seed = (seed * 16807) % 2147483647
  return seed
end
local cells = {}
for k = 0, n * n - 1 do cells[k] = random() % 3 == 0 and 1 or 0 end
for _ = 1, generations do
  local new = {}
  for y = 0, n - 1 do
    local up, here, down = ((y - 1) % n) * n, y * n, ((y + 1) % n) * n
    for x = 0, n - 1 do
      local left, right = (x - 1) % n, (x + 1) % n
      local around = cells[up + left] + cells[up + x] + cells[up + right] + cells[here + left]
        + cells[here + right] + cells[down + left] + cells[down + x] + cells[down + right]
      new[here + x] = (around == 3 or (around == 2 and cells[here + x] == 1)) and 1 or 0
    end
  end
  cells = new
end
local alive = 0
for k = 0, n * n - 1 do alive = alive + cells[k] end
print(generations .. " generations, " .. alive .. " cells")
