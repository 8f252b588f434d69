# Pgtcl.
package require Pgtcl
fconfigure stdin -encoding utf-8
fconfigure stdout -encoding utf-8 -buffering line

proc json {s} {
    set out ""
    foreach c [split $s ""] {
        scan $c %c n
        append out [expr {$n < 32 || $n > 126 || $c in {\" \\} ? [format "\\u%04x" $n] : $c}]
    }
    return "\"$out\""
}

# [producer]
proc checked {result} {
    if {[pg_result $result -status] ni {PGRES_COMMAND_OK PGRES_TUPLES_OK}} {
        set message [pg_result $result -error]
        set state [pg_result $result -error sqlstate]
        pg_result $result -clear
        return -code error -errorcode [list PG $state] $message
    }
    return $result
}

proc run {conn sql args} {
    set result [checked [pg_exec $conn $sql {*}$args]]
    set rows [pg_result $result -llist]
    pg_result $result -clear
    return $rows
}

proc produce {conn order} {
    run $conn BEGIN
    run $conn {INSERT INTO orders VALUES ($1)} $order
    run $conn {QUEUE PUSH mail $1} "{\"order\": $order}"
    run $conn COMMIT
}
# [/producer]

# [worker]
# One turn: call it in a loop. False if there was nothing to do for 20 seconds.
proc work {conn} {
    set jobs [run $conn "QUEUE TAKE mail WAIT '20s'"]
    if {$jobs eq ""} { return false }
    lassign [lindex $jobs 0] id token queue attempt payload
    try {
        run $conn BEGIN
        regexp -- {-?\d+} $payload order
        run $conn {INSERT INTO sent VALUES ($1)} $order
        run $conn {QUEUE DONE $1} $token ;# the work and DONE commit together, or not at all
        run $conn COMMIT
    } on error {message} {
        run $conn ROLLBACK
        try {
            run $conn {QUEUE FAIL $1 ERROR $2} $token $message
        } trap {PG QB001} {} - trap {PG QB002} {} {} ;# it is not our job any more, or cancelled
    }
    return true
}
# [/worker]

proc login {} {
    global env conn
    set conn [pg_connect -conninfo "host=$env(QB_HOST) port=$env(QB_PORT) dbname=$env(QB_DB) user=$env(QB_USER) password=$env(QB_PASSWORD)"]
    pg_null_value_string $conn $::null
}

# NULL is an empty string for Pgtcl, unless told.
set null "\u0001null"

proc all {result} {
    checked $result
    set out {}
    foreach a [pg_result $result -lAttributes] {
        lappend columns [json [lindex $a 0]]
        lappend types [json [lindex $a 1]]
    }
    set n [pg_result $result -numTuples]
    for {set i 0} {$i < $n} {incr i} {
        set row {}
        for {set j 0} {$j < [llength $columns]} {incr j} {
            set field [lindex [pg_result $result -getTuple $i] $j]
            lappend row [expr {$field eq $::null ? "null" : [json $field]}]
        }
        lappend out "\[[join $row ,]\]"
    }
    pg_result $result -clear
    return "{\"columns\":\[[join $columns ,]\],\"types\":\[[join $types ,]\],\"rows\":\[[join $out ,]\]}"
}

proc answer {verb words} {
    global conn
    set sql [lindex $words 0]
    set values [lmap w [lrange $words 1 end] { expr {[string index $w 0] eq "n" ? "NULL" : [string range $w 2 end]} }]
    switch $verb {
        exec {
            set result [checked [pg_exec $conn $sql {*}$values]]
            set n [pg_result $result -cmdTuples]
            pg_result $result -clear
            return "{\"count\":$n}"
        }
        query { return [all [pg_exec $conn $sql {*}$values]] }
        begin - commit - rollback { run $conn $verb }
        reconnect { pg_disconnect $conn; login }
        produce { produce $conn $sql }
        work { return "{\"ok\":[work $conn]}" }
        default { return "{\"skip\":[json $verb]}" }
    }
    return "{\"ok\":true}"
}

login
while {[gets stdin line] >= 0} {
    set words [split $line \t]
    if {[catch {answer [lindex $words 0] [lrange $words 1 end]} got options]} {
        set got "{\"error\":[json [lindex [dict get $options -errorcode] 1]],\"message\":[json $got]}"
    }
    puts $got
}
pg_disconnect $conn
