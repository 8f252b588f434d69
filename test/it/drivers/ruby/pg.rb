# ruby-pg.
require_relative "runner"
require "pg"

# [producer]
def produce(conn, order)
  conn.transaction do
    conn.exec_params("INSERT INTO orders VALUES ($1)", [order])
    conn.exec_params("QUEUE PUSH mail $1", [JSON.generate(order: order)])
  end
end
# [/producer]

# [worker]
# One turn: call it in a loop. False if there was nothing to do for 20 seconds.
def work(conn)
  job = conn.exec("QUEUE TAKE mail WAIT '20s'").first or return false
  begin
    conn.transaction do # the work and DONE commit together, or not at all
      conn.exec_params("INSERT INTO sent VALUES ($1)", [JSON.parse(job["payload"])["order"]])
      conn.exec_params("QUEUE DONE $1", [job["token"]])
    end
  rescue => e # whatever it was: nobody else gives the job back
    begin
      conn.exec_params("QUEUE FAIL $1 ERROR $2", [job["token"], e.message])
    rescue PG::ServerError => late # QB001, QB002: it is not our job any more, or cancelled
      raise unless %w[QB001 QB002].include?(late.result.error_field(PG::PG_DIAG_SQLSTATE))
    end
  end
  true
end
# [/worker]

class Program
  def initialize
    @conn = PG.connect(**TO)
    @prepared = {}
  end

  def run(sql, params)
    params.empty? ? @conn.exec(sql) : @conn.exec_params(sql, params)
  end

  def all(result)
    { columns: result.fields, types: result.fields.each_index.map { |i| result.ftype(i).to_s },
      rows: rows_of(result.values), count: result.cmd_tuples }
  end

  def do_exec(sql, *params) = { count: run(sql, params).cmd_tuples }
  def do_query(sql, *params) = all(run(sql, params))

  def do_prepare(sql, *params)
    @prepared[sql] ||= "p#{@prepared.size}".tap { |name| @conn.prepare(name, sql) }
    all(@conn.exec_prepared(@prepared[sql], params))
  end

  def do_stream(sql)
    @conn.send_query(sql)
    @conn.set_single_row_mode
    rows = []
    while (result = @conn.get_result)
      rows += result.check.values
    end
    { rows: rows_of(rows) }
  end

  %w[begin commit rollback].each { |verb| define_method("do_#{verb}") { do_exec(verb) } }

  def do_ping = { ok: @conn.exec("") && @conn.status == PG::CONNECTION_OK }

  def do_cancel(sql)
    thread = Thread.new do
      Thread.current.report_on_exception = false
      @conn.exec(sql)
    end
    $stdin.gets
    @conn.cancel
    all(thread.value)
  end

  def do_reconnect
    @conn.finish
    initialize
    { ok: true }
  end

  def do_produce(n) = produce(@conn, n.to_i) && { ok: true }
  def do_work = { ok: work(@conn) }
  def close = @conn.finish
end

main(Program.new, ->(e) { e.respond_to?(:result) && e.result&.error_field(PG::PG_DIAG_SQLSTATE) })
