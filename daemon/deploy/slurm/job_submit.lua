-- Keeps jobs that name their application off the nodes that are too slow for it now, and tells
-- backfill how long they take.
--
-- Install as job_submit.lua next to slurm.conf, with JobSubmitPlugins=lua. A site that has such a
-- script of its own puts this one next to it under another name, begins its own with
-- dofile("/etc/slurm/kongming.lua"), and calls kongming.submit(job, partitions) at the end of its
-- slurm_job_submit and kongming.modify(job, record, partitions) in its slurm_job_modify.
--
-- It runs under slurmctld's locks: it reads one local file that `kongming-slurm bridge` keeps, no
-- network, bounded in bytes and in steps. Whatever is wrong with that file or here, the job goes on
-- as if this script were not there. docs/slurm.md has the whole of it.

kongming = {}

local FILE = os.getenv("KONGMING_SLURM_RANKINGS") or "/var/lib/kongming-slurm/rankings"
local MOST_BYTES = 8 * 1024 * 1024
local MOST_NODES = 20000
local MOST_STEPS = 20000000 -- Lua instructions for one job: a fraction of a second
local HEAD_BYTES = 64
local CLOCK_SKEW_S = 60
local NO_VAL16, NO_VAL = 65534, 4294967294
local NO_LIMIT = 0 -- of CPUs or tasks on a node
local BOUNDS = { "task_cpus", "node_tasks", "node_cpus", "memory_per_cpu" }
local NEVER = 1e300 -- the slowdown of a node whose residents would suffer too much

local SIGNATURE = "kongming%-slurm%-rankings"
local NAME = "^[%w_.+-]+$"
local LONGEST_NAME = 64
local LONGEST_COMMENT = 1024 -- Slurm refuses a job with a longer one
local NUMBER = "^%d+%.?%d*$"
local NO_TIME = "kongming:no-time"
local NO_EXCLUSIONS = "kongming:no-exclusions"
local EMPTY_LIST = "," -- of nodes: Slurm takes "" from a script for no change
local MOST_LIMIT = 999999 -- beyond it a number would not fit into a note as the bridge reads it
local KNOWN_SHARE = 0.5 -- with fewer of its nodes known, nothing is said of how long a job takes
local ADVISED_FROM = 2 -- a user is told whose --time is so many times the prediction

-- What of a job is beyond this script: then nothing is excluded, so that nothing can be left over.
local CONSTRAINTS = {
   "req_nodes", "features", "batch_features", "reservation", "clusters",
   "tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task",
}
-- How many of a node's CPUs a job can use with these depends on its sockets, cores and threads.
local SHAPES = {
   "threads_per_core", "cores_per_socket", "sockets_per_node", "sockets_per_board",
   "boards_per_node", "ntasks_per_core", "ntasks_per_socket", "ntasks_per_board",
}

-- The other things by which a job says what it needs; 65534 stands for not said.
local NEEDS16 = { "cpus_per_task", "ntasks_per_node", "pn_min_cpus" }
local NEEDS = { "min_nodes", "max_nodes", "min_cpus", "num_tasks", "pn_min_tmp_disk" }
-- 0 is said, too: all memory of a node.
local MEMORY = { "min_mem_per_node", "min_mem_per_cpu" }

-- What of a partition bounds its jobs' nodes, CPUs and memory.
local PARTITION_BOUNDS = {
   "min_nodes", "max_nodes", "max_cpus_per_node", "def_mem_per_cpu", "def_mem_per_node",
   "max_mem_per_cpu",
}

-- What it has of the file: kept until another one is there.
local known = { head = nil, rankings = nil, why = nil }
local told = nil

local function say_once(why)
   if why ~= told then
      told = why
      if why then
         slurm.log_error("kongming: %s; jobs are scheduled without it", why)
      else
         slurm.log_info("kongming: %s is in use", FILE)
      end
   end
end

local function number(word)
   if #word > 24 or not word:match(NUMBER) then
      return nil
   end
   return tonumber(word)
end

local function is_name(word)
   return #word <= LONGEST_NAME and word:match(NAME) ~= nil
end

-- The file -----------------------------------------------------------------------------------

-- The numbers of a line; "-" is false, "x" is NEVER. nil where it holds anything else.
local function numbers(rest, count)
   local found, n = {}, 0
   for word in rest:gmatch("%S+") do
      n = n + 1
      if n > count then
         return nil
      end
      if word == "-" then
         found[n] = false
      elseif word == "x" then
         found[n] = NEVER
      else
         found[n] = number(word)
         if not found[n] then
            return nil
         end
      end
   end
   return n == count and found or nil
end

local function plain(found)
   for _, value in ipairs(found or {}) do
      if not value or value == NEVER then
         return nil
      end
   end
   return found
end

local function members(rest, count)
   local found = {}
   for word in rest:gmatch("%S+") do
      local place = number(word)
      if not place or place < 1 or place > count or place % 1 ~= 0 then
         return nil
      end
      found[#found + 1] = place
   end
   return found
end

-- The file's text as a table; or nil and why not.
local function parsed(text)
   local version = text:match("^" .. SIGNATURE .. " (%d+)\n")
   if not version then
      return nil, FILE .. " is no file of rankings"
   elseif version ~= "1" then
      return nil, FILE .. " has version " .. version .. ", and this script reads 1"
   end
   local broken = FILE .. " is damaged"
   local r = { apps = {}, least = {}, partitions = {}, seconds = {}, users = {} }
   local lines, last = 0, nil
   for line in text:gmatch("([^\n]*)\n") do
      if last then
         return nil, broken
      end
      local key, rest = line:match("^(%S+) ?(.*)$")
      if key == "end" then
         last = number(rest)
         if last ~= lines then
            return nil, broken
         end
      elseif key == "written" or key == "good-for" or key == "limit" then
         r[key] = number(rest)
      elseif key == "nodes" then
         r.nodes, r.places = {}, {}
         for name in rest:gmatch("%S+") do
            local n = #r.nodes + 1
            if n > MOST_NODES or not is_name(name) or r.places[name] then
               return nil, broken
            end
            r.nodes[n], r.places[name] = name, n
         end
      elseif not r.nodes and lines > 0 then
         return nil, broken
      elseif key == "up" or key == "cpus" or key == "memory" or key == "threads" then
         r[key] = plain(numbers(rest, #r.nodes))
      elseif key == "times" then
         local sets, advises, share = rest:match("^([01]) ([01]) (%S+)$")
         r.times = sets and number(share)
            and { sets = sets == "1", advises = advises == "1", share = number(share) } or nil
      elseif key == "users-only" or key == "users-skip" then
         local users = {}
         for user in rest:gmatch("%d+") do
            users[tonumber(user)] = true
         end
         r.users[key] = users
      elseif key == "partition" or key == "app" or key == "least" or key == "time" then
         local name, values = rest:match("^(%S+) ?(.*)$")
         if not name then
            return nil, broken
         elseif key == "app" then
            r.apps[name] = values -- of a thousand lines one is needed: its numbers are read then
         elseif key == "least" then
            r.least[name] = values
         elseif key == "time" then
            r.seconds[name] = values
         else
            r.partitions[name] = members(values, #r.nodes)
         end
      end
      -- Lines of other words are of a later time, and not needed here.
      lines = lines + 1
   end
   if not (last and text:sub(-1) == "\n" and r.written and r["good-for"] and r.limit
           and r.nodes and r.up and r.cpus and r.memory) then
      return nil, broken
   end
   return r
end

-- What the file says, from memory where it is the same file; or nil and why not.
local function rankings()
   local file = io.open(FILE, "rb")
   if not file then
      return nil, FILE .. " cannot be read"
   end
   local size = file:seek("end")
   if not size or size > MOST_BYTES then
      file:close()
      return nil, FILE .. " is too large"
   end
   file:seek("set")
   local begun = file:read(HEAD_BYTES) or ""
   -- Each file that is written has another moment in its second line.
   local head = size .. " " .. begun
   if head ~= known.head then
      local text = begun .. (file:read(size) or "")
      known.head, known.rankings, known.why = head, nil, FILE .. " is damaged"
      if #text == size then
         known.rankings, known.why = parsed(text)
      end
   end
   file:close()
   local r = known.rankings
   if not r then
      return nil, known.why
   end
   local age = os.time() - r.written
   if age > r["good-for"] or age < -CLOCK_SKEW_S then
      return nil, FILE .. " is out of date: is `kongming-slurm bridge` running?"
   end
   return r
end

-- The job ------------------------------------------------------------------------------------

-- Application and limit that a tag `kongming:app=NAME,limit=1.2` names; nil without a valid tag.
local function tagged(comment)
   local tag
   for text in (" " .. comment):gmatch("%skongming:(%S+)") do
      local word = "kongming:" .. text
      if not tag and word ~= NO_TIME and word ~= NO_EXCLUSIONS then
         tag = text
      end
   end
   if not tag then
      return nil
   end
   local app, limit
   for part in tag:gmatch("[^,]+") do
      local key, value = part:match("^(%w+)=(.+)$")
      if key == "app" and is_name(value) then
         app = value
      elseif key == "limit" and number(value) and number(value) >= 1 then
         limit = number(value)
      else
         return nil
      end
   end
   return app, limit
end

-- What a job asks for: a text field that is not empty, or nil.
local function text_of(value)
   return type(value) == "string" and value ~= "" and value or nil
end

local function below(value, unset, otherwise)
   return type(value) == "number" and value > 0 and value < unset and value or otherwise
end

-- The application by tag, comment or name; its limit; and whether a tag says so.
local function application(job, r)
   local comment = text_of(job.comment) or ""
   local app, limit = tagged(comment)
   if app then
      return app, limit or r.limit, true
   end
   -- Not (.-), which takes the square of a long comment's length, and no step of Lua.
   local word = comment:match("^%s*(%S+)%s*$")
   if word and is_name(word) and r.apps[word] then
      return word, r.limit, false
   end
   local name = text_of(job.name)
   if name and is_name(name) and r.apps[name] then
      return name, r.limit, false
   end
   return nil
end

local function partitions_of(job, partitions)
   local found = {}
   for name in (text_of(job.partition) or ""):gmatch("[^,]+") do
      found[#found + 1] = name
   end
   if #found == 0 then
      for name, partition in pairs(partitions) do
         if partition.flag_default == 1 then
            found[1] = name
         end
      end
   end
   return found
end

local function bounded(count, limit)
   return limit == NO_LIMIT and count or math.min(count, limit)
end

-- What the job needs, on each node and together; nil where that cannot be told here.
local function needs(job, partitions)
   for _, field in ipairs(CONSTRAINTS) do
      if text_of(job[field]) then
         return nil
      end
   end
   for _, field in ipairs(SHAPES) do
      if below(job[field], NO_VAL16, nil) then
         return nil
      end
   end
   if job.contiguous == 1 or below(job.pn_min_tmp_disk, NO_VAL, 0) > 0 then
      return nil
   end
   local need = {
      nodes = below(job.min_nodes, NO_VAL, 1),
      task_cpus = below(job.cpus_per_task, NO_VAL16, 1),
      node_tasks = below(job.ntasks_per_node, NO_VAL16, NO_LIMIT),
      node_cpus = NO_LIMIT,
      memory_per_cpu = below(job.min_mem_per_cpu, NO_VAL, 0),
   }
   local memory = below(job.min_mem_per_node, NO_VAL, 0)
   local no_memory = job.min_mem_per_node == nil and job.min_mem_per_cpu == nil
   local most_nodes = below(job.max_nodes, NO_VAL, math.huge)
   local max_per_cpu = math.huge
   for _, name in ipairs(partitions_of(job, partitions)) do
      local partition = partitions[name]
      if not partition then
         return nil
      end
      most_nodes = math.min(most_nodes, below(partition.max_nodes, NO_VAL, math.huge))
      max_per_cpu = math.min(max_per_cpu, below(partition.max_mem_per_cpu, NO_VAL, math.huge))
      need.nodes = math.max(need.nodes, below(partition.min_nodes, NO_VAL, 1))
      local most = below(partition.max_cpus_per_node, NO_VAL, need.node_cpus)
      need.node_cpus = bounded(most, need.node_cpus)
      if no_memory then
         local default = below(partition.def_mem_per_cpu, NO_VAL, 0)
         need.memory_per_cpu = math.max(need.memory_per_cpu, default)
         memory = math.max(memory, below(partition.def_mem_per_node, NO_VAL, 0))
      end
   end
   if need.memory_per_cpu > max_per_cpu or memory > max_per_cpu and need.node_tasks > 0 then
      return nil -- Slurm gives each task more CPUs, so that it gets its memory
   end
   need.total = math.max(
      below(job.min_cpus, NO_VAL, 1), need.task_cpus * below(job.num_tasks, NO_VAL, 1))
   need.cpus = math.max(
      below(job.pn_min_cpus, NO_VAL16, 1),
      need.task_cpus * math.max(need.node_tasks, 1),
      -- No more than its greatest number of nodes together: each has its share.
      math.ceil(need.total / most_nodes),
      -- With so much memory on a node, Slurm gives it so many CPUs there.
      math.ceil(memory / max_per_cpu))
   need.memory = math.max(memory, need.memory_per_cpu * need.cpus)
   return need
end

-- How many CPUs of each place the job can use, those of complete tasks: policy.py has it, too. Memory
-- is given to complete cores; where their threads are not known, as in the file of an older bridge, a
-- node counts nothing whose memory does not suffice for all its CPUs.
local function usable_cpus(r, need)
   local usable = {}
   for place in ipairs(r.nodes) do
      local cpus = r.cpus[place]
      local held = need.memory_per_cpu > 0 and math.floor(r.memory[place] / need.memory_per_cpu)
      if held and held < cpus then
         -- As with CR_Core; with CR_CPU a job may be left more nodes than it needs.
         local threads = r.threads and r.threads[place] or 0
         cpus = threads > 0 and held - held % threads or 0
      end
      cpus = bounded(cpus, need.node_cpus)
      usable[place] = need.task_cpus * bounded(math.floor(cpus / need.task_cpus), need.node_tasks)
   end
   return usable
end

-- "n[1-3,07],m" as a set of names. nil where it is not understood, or too large.
local function expanded(hosts)
   local found, count = {}, 0
   local depth, from = 0, 1
   local parts = {}
   if #hosts > 1000000 then
      return nil
   end
   for at = 1, #hosts + 1 do
      local c = hosts:sub(at, at)
      if c == "[" then
         depth = depth + 1
      elseif c == "]" then
         depth = depth - 1
      elseif (c == "," and depth == 0) or c == "" then
         parts[#parts + 1] = hosts:sub(from, at - 1)
         from = at + 1
      end
   end
   for _, part in ipairs(hosts ~= "" and parts or {}) do
      local before, ranges, after = part:match("^([%w_.+-]*)%[([%d,-]+)%]([%w_.+-]*)$")
      if not before then
         if not is_name(part) then
            return nil
         end
         before, ranges, after = part, nil, ""
         found[part], count = true, count + 1
      end
      for range in (ranges or ""):gmatch("[^,]+") do
         local low, high = range:match("^(%d+)%-(%d+)$")
         low = low or range:match("^(%d+)$")
         high = high or low
         if not low or #low > 9 or #high > 9 or tonumber(high) - tonumber(low) >= MOST_NODES then
            return nil
         end
         for n = tonumber(low), tonumber(high) do
            found[before .. string.format("%0" .. #low .. "d", n) .. after] = true
            count = count + 1
            if count > MOST_NODES then
               return nil
            end
         end
      end
   end
   return found
end

-- Of the places that can serve the job, those above the limit, or that may be as they are slowed at
-- least so much; the least slow of them stay in where too few would be left. nil where even all of
-- them are too few.
function kongming.excluded(places, slow, cpus, limit, nodes, total, least)
   local over, kept, sum = {}, 0, 0
   local all = 0
   for _, place in ipairs(places) do
      all = all + cpus[place]
      if slow[place] and (slow[place] > limit or (least and least[place])) then
         over[#over + 1] = place
      else
         kept, sum = kept + 1, sum + cpus[place]
      end
   end
   if #places < nodes or all < total then
      return nil
   end
   table.sort(over, function(a, b)
      if slow[a] ~= slow[b] then
         return slow[a] < slow[b]
      end
      return a < b
   end)
   local first = 1
   while first <= #over and (kept < nodes or sum < total) do
      kept, sum, first = kept + 1, sum + cpus[over[first]], first + 1
   end
   local found = {}
   for at = first, #over do
      found[over[at]] = true
   end
   return found
end

-- The places of a partition that are up, large enough, and not excluded by the job itself.
local function serving(r, members_, need, usable, own)
   local found = {}
   for _, place in ipairs(members_) do
      if r.up[place] == 1 and usable[place] >= need.cpus and r.memory[place] >= need.memory
         and not own[r.nodes[place]] then
         found[#found + 1] = place
      end
   end
   return found
end

-- Names of the nodes to exclude, in their order, and the places that stay; nil where nothing is to
-- be said.
local function exclusions(r, names, app, limit, need, usable, own)
   local slow = numbers(r.apps[app], #r.nodes)
   if not slow then
      return nil
   end
   local open, least = members(r.least[app] or "", #r.nodes), {}
   if not open then
      return nil
   end
   for _, place in ipairs(open) do
      least[place] = true
   end
   local out, stays = {}, {}
   for _, name in ipairs(names) do
      if not r.partitions[name] then
         return nil
      end
      local places = serving(r, r.partitions[name], need, usable, own)
      local over = kongming.excluded(places, slow, usable, limit, need.nodes, need.total, least)
      if not over then
         return nil
      end
      -- In each of its partitions the job has to find a place.
      for _, place in ipairs(places) do
         if over[place] then
            out[place] = true
         else
            stays[place] = true
         end
      end
   end
   local found = {}
   for place, name in ipairs(r.nodes) do
      if out[place] and not stays[place] then
         found[#found + 1] = name
      end
   end
   return found, stays
end

local function has_word(text, word)
   return (" " .. text .. " "):gsub("%s", " "):find(" " .. word .. " ", 1, true) ~= nil
end

-- Minutes for --time-min of a job that may get any of these places: what a run takes on the slowest,
-- always below its own limit. nil where nothing is gained by that, or too few places are known.
function kongming.time_min(seconds, places, own)
   local most, known, count = 0, 0, 0
   for place in pairs(places) do
      count = count + 1
      if seconds[place] then
         known, most = known + 1, math.max(most, seconds[place])
      end
   end
   local minutes = math.max(1, math.ceil(most / 60))
   if known == 0 or known < KNOWN_SHARE * count or minutes >= own then
      return nil
   end
   return minutes
end

-- The time limit of the job itself in minutes. nil where its times are no business of this script:
-- it has a --time-min of its own, no limit or one beyond its partition's, more than one node or
-- component, or its user wants none.
local function own_limit(job, r, partitions, need)
   local only, skip = r.users["users-only"], r.users["users-skip"]
   local user = job.user_id
   if not r.times or need.nodes > 1 or below(job.time_min, NO_VAL, nil)
      or has_word(text_of(job.comment) or "", NO_TIME)
      or type(job.het_job_offset) == "number" and job.het_job_offset < NO_VAL
      or only and not only[user] or skip and skip[user] then
      return nil
   end
   local limit = job.time_limit
   local names = partitions_of(job, partitions)
   if limit == nil or limit == NO_VAL then
      local partition = #names == 1 and partitions[names[1]] or {}
      return below(partition.default_time, NO_VAL, nil) or below(partition.max_time, NO_VAL, nil)
   end
   for _, name in ipairs(names) do
      -- With a --time-min Slurm would start it, and its limit would then be set beyond the partition's.
      if limit > below((partitions[name] or {}).max_time, NO_VAL, limit) then
         return nil
      end
   end
   return below(limit, NO_VAL, nil)
end

-- Whether each of these places holds all of the job: what is predicted is the time on one node.
local function fits_one(places, usable, need)
   for place in pairs(places) do
      if usable[place] < need.total then
         return false
      end
   end
   return true
end

-- Sets --time-min, and tells the user what is predicted.
local function keep_time(job, r, app, stays, own)
   local seconds = r.seconds[app] and numbers(r.seconds[app], #r.nodes)
   local minutes = seconds and kongming.time_min(seconds, stays, own)
   if not minutes then
      return
   end
   if r.times.sets then
      job.time_min = minutes
   end
   if r.times.advises and own >= ADVISED_FROM * minutes then
      slurm.log_user("kongming: %g%% of such runs of %s end within %d min on these nodes, and the "
         .. "time limit is %d min. %s", 100 * r.times.share, app, minutes, own, r.times.sets
         and "--time-min was set so that it may start sooner; the limit stays."
         or "A --time nearer to that may start it sooner.")
   end
end

local function with(before, separator, more)
   return before and before .. separator .. more or more
end

local function decide(job, partitions)
   local r, why = rankings()
   say_once(why)
   if not r then
      return
   end
   local app, limit, says_so = application(job, r)
   if not app or not r.apps[app] then
      return
   end
   if not says_so then
      -- What prolog and epilog see of a job is its comment.
      local comment = with(text_of(job.comment), " ", "kongming:app=" .. app)
      if #comment <= LONGEST_COMMENT then
         job.comment = comment
      end
   end
   if has_word(text_of(job.comment) or "", NO_EXCLUSIONS) then
      return
   end
   -- As it is noted, so that the bridge decides by the same. Not %g, which writes an exponent.
   local limit_text = string.format("%.6f", math.min(limit, MOST_LIMIT)):gsub("%.?0+$", "")
   limit = tonumber(limit_text)
   local own_text = text_of(job.exc_nodes)
   local need, own = needs(job, partitions), expanded(own_text or "")
   if not need or not own then
      return
   end
   local usable = usable_cpus(r, need)
   local names = partitions_of(job, partitions)
   local found, stays = exclusions(r, names, app, limit, need, usable, own)
   if not found then
      return
   end
   local minutes = fits_one(stays, usable, need) and own_limit(job, r, partitions, need) or nil
   if minutes then
      keep_time(job, r, app, stays, minutes)
   end
   if #found > 0 then
      job.exc_nodes = with(own_text, ",", table.concat(found, ","))
   end
   -- By this the bridge knows the job while it waits, and what it is to be kept from breaking.
   local tag = string.format("kongming:app=%s,limit=%s,nodes=%d,cpus=%d,memory=%d,total=%d,",
      app, limit_text, need.nodes, need.cpus, need.memory, need.total)
   for _, bound in ipairs(BOUNDS) do
      if need[bound] > 0 then
         tag = tag .. string.format("%s=%d,", bound:gsub("_", "-"), need[bound])
      end
   end
   if minutes and r.times.sets then
      tag = tag .. string.format("time=%d,", minutes)
   end
   tag = tag .. "own=" .. (own_text or "")
   job.admin_comment = with(text_of(job.admin_comment), " ", tag)
   slurm.log_debug("kongming: %s at limit %g: %d nodes excluded", app, limit, #found)
end

-- Whether a change is of what the job needs.
local function needs_change(job)
   local lists = { { CONSTRAINTS }, { SHAPES, NO_VAL16 }, { NEEDS16, NO_VAL16 }, { NEEDS, NO_VAL } }
   for _, list in ipairs(lists) do
      local fields, unset = list[1], list[2]
      for _, field in ipairs(fields) do
         local value = job[field]
         if type(value) == "string" or unset and below(value, unset, nil) then
            return true
         end
      end
   end
   for _, field in ipairs(MEMORY) do
      if job[field] == 0 or below(job[field], NO_VAL, nil) then
         return true
      end
   end
   return job.contiguous == 1
end

-- Whether a job's partitions, the new ones and those before, do not bound it alike: then what was
-- noted of it does not hold any more.
local function bounds_change(job, record, partitions)
   local names = partitions_of(job, partitions)
   for _, name in ipairs(partitions_of(record, partitions)) do
      names[#names + 1] = name
   end
   local function bound(name, field)
      return below(partitions[name][field], NO_VAL, field == "min_nodes" and 1 or nil)
   end
   for _, name in ipairs(names) do
      for _, field in ipairs(PARTITION_BOUNDS) do
         if not partitions[name] or bound(name, field) ~= bound(names[1], field) then
            return true
         end
      end
   end
   return false
end

-- A job of which somebody else than the bridge changes the excluded nodes, or what it needs, is left
-- alone from then on: the note is of what it needed before. So is one whose user says so in its
-- comment, and then none but its own nodes stay excluded. Its comment has the word in each case, for users may not
-- change the note. True where its nodes, or its partition, are others now.
local function leave_nodes(job, record, partitions, note)
   local excluded = job.exc_nodes
   local before = text_of(record.comment) or ""
   local theirs = has_word(before, NO_EXCLUSIONS)
   if type(excluded) == "string" and job.contiguous == 0 then
      -- By that the bridge marks its changes. It may have read the job before it became theirs.
      if theirs then
         job.exc_nodes = ""
      end
      return false
   end
   local moves = text_of(job.partition) ~= nil
   local needs_other = needs_change(job) or moves and bounds_change(job, record, partitions)
   local comment = type(job.comment) == "string" and job.comment or before
   local wanted = has_word(comment, NO_EXCLUSIONS) and not theirs
   local changed = needs_other or wanted or type(excluded) == "string"
   if (changed or theirs) and not has_word(comment, NO_EXCLUSIONS) then
      local marked = with(text_of(comment), " ", NO_EXCLUSIONS)
      if #marked <= LONGEST_COMMENT then
         job.comment = marked
      end
   end
   if (needs_other or wanted or moves) and not theirs and type(excluded) ~= "string" then
      -- Else Slurm would find too few nodes for it. In another partition the bridge looks at it anew.
      job.exc_nodes = text_of(note:match(",own=(.*)$")) or EMPTY_LIST
   end
   return changed or moves
end

-- What somebody else than KONGMING changes of a job. The note outlives an admin comment that is
-- written over it: without it nothing would restore the limit. A limit that is changed is theirs from
-- then on. A job with other nodes, or in another partition, has no --time-min, in the latter until
-- the bridge has looked at it.
local function leave(job, record, partitions)
   local note
   for tag in (" " .. (text_of(record.admin_comment) or "")):gmatch("%s(kongming:%S+)") do
      note = tag:find(",own=", 1, true) and tag or note
   end
   if not note then
      return
   end
   local admin = job.admin_comment
   if type(admin) == "string" and not (" " .. admin):find("%skongming:%S+,own=") then
      job.admin_comment = with(text_of(admin), " ", note)
   end
   local waits = record.job_state == 0
   local moved = waits and leave_nodes(job, record, partitions or {}, note)
   local noted = tonumber(note:match(",time=(%d+),own="))
   if not noted then
      return
   end
   local limit, comment = job.time_limit, text_of(job.comment) or text_of(record.comment)
   local theirs = has_word(comment or "", NO_TIME)
   local changed = not theirs and limit ~= nil and limit ~= NO_VAL and limit ~= noted
   waits = waits and not below(job.time_min, NO_VAL, nil)
   if changed then
      local marked = with(comment, " ", NO_TIME)
      -- Without a --time-min its limit is left alone, too.
      if #marked <= LONGEST_COMMENT or not waits then
         job.comment = marked
      end
   end
   local now_theirs = theirs and not has_word(text_of(record.comment) or "", NO_TIME)
   if waits and (changed or now_theirs or not theirs and moved) then
      job.time_min = 0 -- of a pending job; else a limit below it would be refused
   end
end

-- Slurm gives one change to the script for each part of an array that is split, one after the other:
-- what the script has set of it for the part before is not its user's. It is the same change only
-- where all of it is as the script left it.
local SETS = { "exc_nodes", "comment", "admin_comment", "time_min" }
local GIVEN = { { "partition", "time_limit", "contiguous" }, CONSTRAINTS, SHAPES, NEEDS16, NEEDS, MEMORY }
local last = {}

local function values_of(job, lists)
   local values = {}
   for _, fields in ipairs(lists) do
      for _, field in ipairs(fields) do
         values[field] = job[field]
      end
   end
   return values
end

local function equal(values, others)
   for field, value in pairs(values) do
      if others[field] ~= value then
         return false
      end
   end
   for field in pairs(others) do
      if values[field] == nil then
         return false
      end
   end
   return true
end

local function leave_parts(job, record, partitions)
   local array = below(record.array_job_id, NO_VAL, nil)
   local request, now = values_of(job, GIVEN), values_of(job, { SETS })
   if array and array == last.array and equal(request, last.request) and equal(now, last.set) then
      for _, field in ipairs(SETS) do
         if last.given[field] ~= last.set[field] then
            job[field] = last.given[field] or "" -- which is none
         end
      end
   end
   local given = values_of(job, { SETS })
   last = {}
   leave(job, record, partitions)
   if array then
      last = { array = array, request = request, given = given, set = values_of(job, { SETS }) }
   end
end

local function guarded(call, ...)
   local function stop()
      error("too many steps", 0)
   end
   debug.sethook(stop, "", MOST_STEPS)
   local fine, why = pcall(call, ...)
   debug.sethook()
   if not fine then
      pcall(say_once, "the script failed (" .. tostring(why) .. ")")
   end
end

-- Called with what slurm_job_submit is called with; never fails.
function kongming.submit(job, partitions)
   guarded(decide, job, partitions)
end

-- Called with what slurm_job_modify is called with; never fails.
function kongming.modify(job, record, partitions)
   guarded(leave_parts, job, record, partitions)
end

function slurm_job_submit(job, partitions, uid)
   kongming.submit(job, partitions)
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   kongming.modify(job, record, partitions)
   return slurm.SUCCESS
end

slurm.log_info("kongming: reads %s", FILE)
return slurm.SUCCESS
