-- sysbench: one SELECT for each event.
function thread_init() con = sysbench.sql.driver():connect() end
function event() con:query("SELECT 1") end
