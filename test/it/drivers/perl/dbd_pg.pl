# DBD::Pg.
use strict;
use warnings;
use utf8;
use DBI;
use DBD::Pg qw(:async);
use JSON::PP;

binmode STDIN, ':encoding(UTF-8)';
$| = 1;
my $json = JSON::PP->new->utf8->canonical->allow_nonref;

# [producer]
sub produce {
    my ($db, $order) = @_;
    $db->begin_work;
    $db->do('INSERT INTO orders VALUES (?)', undef, $order);
    $db->do('QUEUE PUSH mail ?', undef, encode_json({ order => $order }));
    $db->commit;    # both, or neither
}
# [/producer]

# [worker]
# One turn: call it in a loop. False if there was nothing to do for 20 seconds. RaiseError is on.
sub work {
    my ($db) = @_;
    my $job = $db->selectrow_hashref("QUEUE TAKE mail WAIT '20s'") or return 0;
    eval {
        $db->begin_work;
        $db->do('INSERT INTO sent VALUES (?)', undef, decode_json($job->{payload})->{order});
        $db->do('QUEUE DONE ?', undef, $job->{token});    # the work and DONE commit together, or not at all
        $db->commit;
        1;
    } or do {
        my $error = $@;
        $db->rollback;
        eval { $db->do('QUEUE FAIL ? ERROR ?', undef, $job->{token}, $error) }
            or $db->state =~ /^QB00[12]$/    # it is not our job any more, or cancelled
            or die $@;
    };
    return 1;
}
# [/worker]

my ($db, %prepared);

sub login {
    %prepared = ();
    $db = DBI->connect("dbi:Pg:host=$ENV{QB_HOST};port=$ENV{QB_PORT};dbname=$ENV{QB_DB}", $ENV{QB_USER},
        $ENV{QB_PASSWORD}, { RaiseError => 1, PrintError => 0, AutoCommit => 1 });
}

sub value { my ($kind, $text) = split /:/, shift, 2; return $kind eq 'n' ? undef : $text }
sub sql { (my $sql = shift) =~ s/\$\d/?/g; return $sql }

sub all {
    my $st = shift;
    my $rows = $st->fetchall_arrayref;
    return { columns => $st->{NAME}, types => [ map { "$_" } @{ $st->{pg_type} } ], count => "" . $st->rows,
        rows => [ map { [ map { defined $_ ? "$_" : undef } @$_ ] } @$rows ] };
}

sub run {
    my ($sql, @values) = @_;
    my $st = $db->prepare(sql($sql));
    $st->execute(@values);
    return $st;
}

my %do = (
    exec => sub { my ($sql, @v) = @_; return { count => "" . $db->do(sql($sql), undef, @v) } },
    query => sub { all(run(@_)) },
    prepare => sub {
        my ($sql, @v) = @_;
        my $st = $prepared{$sql} //= $db->prepare(sql($sql));
        $st->execute(@v);
        return all($st);
    },
    begin => sub { $db->begin_work; { ok => 1 } },
    commit => sub { $db->commit; { ok => 1 } },
    rollback => sub { $db->rollback; { ok => 1 } },
    ping => sub { { ok => "" . $db->ping } },
    cancel => sub {
        my $st = $db->prepare(shift, { pg_async => PG_ASYNC });
        $st->execute;
        <STDIN>;
        $db->pg_cancel;
        # it takes the answer for its own business: the state tells
        return { error => $db->state };
    },
    reconnect => sub { $db->disconnect; login(); { ok => 1 } },
    produce => sub { produce($db, $_[0]); { ok => 1 } },
    work => sub { { ok => work($db) ? JSON::PP::true : JSON::PP::false } },
);

login();
while (my $line = <STDIN>) {
    chomp $line;
    my ($verb, $first, @rest) = split /\t/, $line, -1;
    my $got = { skip => $verb };
    if ($do{$verb}) {
        $got = eval { $do{$verb}->($first, map { value($_) } @rest) };
        $got = { error => $db->state, class => 'DBI', message => "$@" } unless $got;
    }
    print $json->encode($got), "\n";
}
%prepared = ();
$db->disconnect;
