<?php
// PDO.
require __DIR__ . '/runner.php';

// [producer]
function produce(PDO $db, int $order): void
{
    $db->beginTransaction();
    $db->prepare('INSERT INTO orders VALUES (?)')->execute([$order]);
    $db->prepare('QUEUE PUSH mail ?')->execute([json_encode(['order' => $order])]);
    $db->commit(); // both, or neither
}
// [/producer]

// [worker]
// One turn: call it in a loop. False if there was nothing to do for 20 seconds. query(), not exec(): it has rows.
function work(PDO $db): bool
{
    $job = $db->query("QUEUE TAKE mail WAIT '20s'")->fetch(PDO::FETCH_ASSOC);
    if (!$job) {
        return false;
    }
    try {
        $db->beginTransaction();
        $db->prepare('INSERT INTO sent VALUES (?)')->execute([json_decode($job['payload'])->order]);
        $db->prepare('QUEUE DONE ?')->execute([$job['token']]); // the work and DONE commit together, or not at all
        $db->commit();
    } catch (Throwable $e) { // whatever it was: nobody else gives the job back
        $db->rollBack();
        try {
            $db->prepare('QUEUE FAIL ? ERROR ?')->execute([$job['token'], $e->getMessage()]);
        } catch (PDOException $late) {
            if (!in_array($late->getCode(), ['QB001', 'QB002'], true)) {
                throw $late; // else it is not our job any more, or cancelled
            }
        }
    }
    return true;
}
// [/worker]

class Program
{
    private PDO $db;
    private array $prepared = [];

    public function __construct()
    {
        $env = 'getenv';
        $this->db = new PDO("pgsql:host={$env('QB_HOST')};port={$env('QB_PORT')};dbname={$env('QB_DB')}", $env('QB_USER'),
            $env('QB_PASSWORD'), [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
    }

    private function run(string $sql, array $values): PDOStatement
    {
        if (!$values) {
            return $this->db->query($sql);
        }
        $st = $this->db->prepare(preg_replace('/\$\d/', '?', $sql));
        $st->execute($values);
        return $st;
    }

    private function all(PDOStatement $st): array
    {
        $meta = array_map(fn ($i) => $st->getColumnMeta($i), range(0, $st->columnCount() - 1));
        return ['columns' => array_column($meta, 'name'), 'types' => array_map('strval', array_column($meta, 'pgsql:oid')),
            'count' => $st->rowCount(), 'rows' => rows_of($st->fetchAll(PDO::FETCH_NUM))];
    }

    public function do_exec(string $sql, ...$values): array
    {
        return ['count' => $values ? $this->run($sql, $values)->rowCount() : $this->db->exec($sql)];
    }

    public function do_query(string $sql, ...$values): array { return $this->all($this->run($sql, $values)); }

    public function do_prepare(string $sql, ...$values): array
    {
        $st = $this->prepared[$sql] ??= $this->db->prepare(preg_replace('/\$\d/', '?', $sql));
        $st->execute($values);
        return $this->all($st);
    }

    public function do_begin(): array { return ['ok' => $this->db->beginTransaction()]; }
    public function do_commit(): array { return ['ok' => $this->db->commit()]; }
    public function do_rollback(): array { return ['ok' => $this->db->rollBack()]; }

    public function do_cursor(string $sql, int $n): array
    {
        $this->db->beginTransaction();
        try {
            $st = $this->db->prepare($sql, [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]);
            $st->execute();
            $rows = [];
            while ($row = $st->fetch(PDO::FETCH_NUM)) {
                $rows[] = $row;
            }
            $st = null;
            $this->db->commit();
            return ['rows' => rows_of($rows)];
        } catch (PDOException $e) {
            $this->db->rollBack();
            throw $e;
        }
    }

    public function do_reconnect(): array
    {
        $this->close();
        $this->__construct();
        return ['ok' => true];
    }

    public function do_produce(string $n): array { produce($this->db, (int) $n); return ['ok' => true]; }
    public function do_work(): array { return ['ok' => work($this->db)]; }
    public function sqlstate(Exception $e): ?string { return $e->errorInfo[0] ?? (string) $e->getCode(); }

    public function close(): void
    {
        $this->prepared = [];
        unset($this->db);
    }
}

main(new Program());
