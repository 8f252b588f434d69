# ActiveRecord.
require_relative "runner"
require "active_record"

ActiveRecord::Base.establish_connection(adapter: "postgresql", host: TO[:host], port: TO[:port], database: TO[:dbname],
                                        username: TO[:user], password: TO[:password], pool: 1)

# [producer]
def produce(order)
  conn = ActiveRecord::Base.connection
  ActiveRecord::Base.transaction do
    conn.exec_update("INSERT INTO orders VALUES ($1)", "Order", [order])
    conn.exec_update("QUEUE PUSH mail $1", "Push", [JSON.generate(order: order)])
  end
end
# [/producer]

# [worker]
# One turn: call it in a loop. False if there was nothing to do for 20 seconds.
def work
  conn = ActiveRecord::Base.connection
  job = conn.exec_query("QUEUE TAKE mail WAIT '20s'", "Take").first or return false
  begin
    ActiveRecord::Base.transaction do # the work and DONE commit together, or not at all
      conn.exec_update("INSERT INTO sent VALUES ($1)", "Work", [JSON.parse(job["payload"])["order"]])
      conn.exec_update("QUEUE DONE $1", "Done", [job["token"]])
    end
  rescue => e # whatever it was: nobody else gives the job back
    begin
      conn.exec_update("QUEUE FAIL $1 ERROR $2", "Fail", [job["token"], e.message])
    rescue ActiveRecord::StatementInvalid => late # QB001, QB002: it is not our job any more, or cancelled
      raise unless %w[QB001 QB002].include?(late.cause.result&.error_field(PG::PG_DIAG_SQLSTATE))
    end
  end
  true
end
# [/worker]

class Program
  def conn = ActiveRecord::Base.connection

  def all(result)
    { columns: result.columns, rows: rows_of(result.rows) }
  end

  def do_exec(sql, *params) = { count: conn.exec_update(sql, nil, params) }
  def do_query(sql, *params) = all(conn.exec_query(sql, nil, params))
  def do_prepare(sql, *params) = all(conn.exec_query(sql, nil, params, prepare: true))

  def do_begin
    conn.begin_transaction(joinable: false)
    { ok: true }
  end

  def do_commit
    conn.commit_transaction
    { ok: true }
  end

  def do_rollback
    conn.rollback_transaction
    { ok: true }
  end

  def do_ping = { ok: conn.active? }

  def do_pool(n)
    n.to_i.times do
      ActiveRecord::Base.connection_pool.release_connection
      conn.select_value("SELECT 1")
    end
    { ok: true }
  end

  def do_cancel(sql)
    raw = conn.raw_connection
    thread = Thread.new do
      Thread.current.report_on_exception = false
      raw.exec(sql)
    end
    $stdin.gets
    raw.cancel
    thread.value
    { ok: true }
  end

  def do_reconnect
    conn.disconnect!
    conn.reconnect!
    { ok: true }
  end

  def do_produce(n) = produce(n.to_i) && { ok: true }
  def do_work = { ok: work }
  def close = conn.disconnect!
end

main(Program.new, lambda { |e|
  e = e.cause if e.is_a?(ActiveRecord::StatementInvalid)
  e.respond_to?(:result) && e.result&.error_field(PG::PG_DIAG_SQLSTATE)
})
