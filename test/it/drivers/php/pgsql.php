<?php
// PHP's functions pg_*.
require __DIR__ . '/runner.php';

class PgError extends Exception
{
}

class Program
{
    private $db;
    private array $prepared = [];

    public function __construct()
    {
        $env = 'getenv';
        $this->db = pg_connect("host={$env('QB_HOST')} port={$env('QB_PORT')} dbname={$env('QB_DB')} user={$env('QB_USER')}"
            . " password={$env('QB_PASSWORD')}", PGSQL_CONNECT_FORCE_NEW);
    }

    private function result()
    {
        $got = pg_get_result($this->db);
        while (pg_get_result($this->db)) {
        }
        if (pg_result_error_field($got, PGSQL_DIAG_SQLSTATE)) {
            throw new PgError(pg_result_error_field($got, PGSQL_DIAG_SQLSTATE));
        }
        return $got;
    }

    private function run(string $sql, array $values)
    {
        $values ? pg_send_query_params($this->db, $sql, $values) : pg_send_query($this->db, $sql);
        return $this->result();
    }

    private function all($got): array
    {
        $columns = range(0, pg_num_fields($got) - 1);
        return ['columns' => array_map(fn ($i) => pg_field_name($got, $i), $columns),
            'types' => array_map(fn ($i) => (string) pg_field_type_oid($got, $i), $columns),
            'count' => pg_affected_rows($got), 'rows' => rows_of(pg_fetch_all($got, PGSQL_NUM))];
    }

    public function do_exec(string $sql, ...$values): array { return ['count' => pg_affected_rows($this->run($sql, $values))]; }
    public function do_query(string $sql, ...$values): array { return $this->all($this->run($sql, $values)); }

    public function do_prepare(string $sql, ...$values): array
    {
        if (!isset($this->prepared[$sql])) {
            $this->prepared[$sql] = 'p' . count($this->prepared);
            pg_send_prepare($this->db, $this->prepared[$sql], $sql);
            $this->result();
        }
        pg_send_execute($this->db, $this->prepared[$sql], $values);
        return $this->all($this->result());
    }

    public function do_begin(): array { return $this->do_exec('BEGIN'); }
    public function do_commit(): array { return $this->do_exec('COMMIT'); }
    public function do_rollback(): array { return $this->do_exec('ROLLBACK'); }
    public function do_ping(): array { return ['ok' => pg_ping($this->db)]; }

    public function do_cancel(string $sql): array
    {
        pg_send_query($this->db, $sql);
        fgets(STDIN);
        pg_cancel_query($this->db); // and reads what comes: the error is gone with it
        return ['error' => 'cancelled'];
    }

    public function do_reconnect(): array
    {
        $this->close();
        $this->prepared = [];
        $this->__construct();
        return ['ok' => true];
    }

    public function sqlstate(Exception $e): ?string { return $e->getMessage(); }
    public function close(): void { pg_close($this->db); }
}

main(new Program());
