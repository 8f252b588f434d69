# What the Ruby programs of the suite share: commands in, answers out. ../README.md has the commands.
require "json"

$stdout.sync = true
TO = { host: ENV["QB_HOST"], port: ENV["QB_PORT"].to_i, dbname: ENV["QB_DB"], user: ENV["QB_USER"],
       password: ENV["QB_PASSWORD"] }.freeze

def value(field)
  { "i" => -> { field[2..].to_i }, "s" => -> { field[2..] }, "n" => -> {} }[field[0]].call
end

def text(v)
  case v
  when nil, String then v
  when Time then v.utc.strftime("%F %T.%6N")
  when Hash, Array then JSON.generate(v)
  else v.to_s
  end
end

def rows_of(rows)
  rows.map { |row| row.map { |v| text(v) } }
end

# Answers command by command until the end of the input; sqlstate gives the SQLSTATE of an error.
def main(program, sqlstate)
  while (line = $stdin.gets)
    verb, first, *rest = line.chomp.force_encoding("UTF-8").split("\t")
    got = begin
      if program.respond_to?("do_#{verb}")
        program.public_send("do_#{verb}", *[first].compact, *rest.map { |f| value(f) })
      else
        { skip: verb }
      end
    rescue StandardError => e
      { error: sqlstate.call(e), class: e.class.name, message: e.message.lines.first.to_s.chomp }
    end
    puts JSON.generate(got)
  end
  program.close
end
