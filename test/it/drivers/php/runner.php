<?php
// What the PHP programs of the suite share: commands in, answers out. ../README.md has the commands.

function value(string $field)
{
    return ['i' => (int) substr($field, 2), 's' => substr($field, 2), 'n' => null][$field[0]];
}

function text($v): ?string
{
    return $v === null ? null : (is_bool($v) ? ($v ? 'true' : 'false') : (string) $v);
}

function rows_of(array $rows): array
{
    return array_map(fn ($row) => array_map('text', array_values($row)), $rows);
}

// Answers command by command until the end of the input.
function main(object $program): void
{
    while (($line = fgets(STDIN)) !== false) {
        $words = explode("\t", rtrim($line, "\n"));
        $method = 'do_' . $words[0];
        if (!method_exists($program, $method)) {
            $got = ['skip' => $words[0]];
        } else {
            try {
                $got = $program->$method(...array_slice($words, 1, 1), ...array_map('value', array_slice($words, 2)));
            } catch (Exception $e) {
                $got = ['error' => $program->sqlstate($e), 'class' => get_class($e), 'message' => $e->getMessage()];
            }
        }
        echo json_encode($got), "\n";
    }
    $program->close();
}
