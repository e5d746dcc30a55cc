-- Runs job_submit.lua as slurmctld would, for many jobs in one process:
-- lua submit.lua job_submit.lua < requests. A request is one line, a Lua table in text; an answer is
-- one line for each field that the job has then, and "done".
local script = arg[1]
local lines = {}
local function keep(kind)
   return function(text, ...)
      lines[#lines + 1] = kind .. "\t" .. string.format(text, ...)
   end
end
slurm = {
   SUCCESS = 0, log_info = keep("info"), log_error = keep("error"), log_debug = keep("debug"),
   log_user = keep("user"),
}
assert(dofile(script) == 0)
local evaluate = loadstring or load
for line in io.lines() do
   local request = evaluate("return " .. line)()
   if request.now then
      os.time = function() return request.now end
   end
   lines = {}
   -- Slurm takes "" from a script for no value.
   local job = setmetatable({}, {
      __index = request.job,
      __newindex = function(_, key, value)
         request.job[key] = value ~= "" and value or nil
      end,
   })
   local began = os.clock()
   local status
   if request.record then
      status = slurm_job_modify(job, request.record, request.partitions, 0)
   else
      status = slurm_job_submit(job, request.partitions, 0)
   end
   local took = os.clock() - began
   io.write("status\t", tostring(status), "\nclock\t", tostring(took), "\n")
   for _, key in ipairs({"exc_nodes", "comment", "admin_comment", "time_min"}) do
      if job[key] then
         io.write(key, "\t", tostring(job[key]), "\n")
      end
   end
   for _, said in ipairs(lines) do
      io.write("log\t", said, "\n")
   end
   io.write("done\n")
   io.flush()
end
