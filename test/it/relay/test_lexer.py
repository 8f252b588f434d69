"""The lexer against Postgres itself: what is one literal, and what it means.

Random literals, from a fixed seed, of the pieces that matter. `SELECT (literal)::text` succeeds
exactly when our lexer sees one token with a value, and gives that value.
"""

import ctypes
import glob
import os
import random
import subprocess

import psycopg2
import pytest

from tree import ROOT

STARTS = ["'", "E'", "e'", "U&'", "B'", "X'", "$$", "$a$", "$é$", ""]
PIECES = ["'", "'", "''", "\\", "\\'", "\\\\", "\\n", "\\101", "\\x41", "\\u0041", "\\0041",
          "\\+000041", "\\uD83D", "\\uDE00", "\\D83D", "\\DE00", "a", "1", "0", "f", "\n", "\r", " ",
          "\t", "--", "-", "/*", "*/", "$", "$$", "$a$", "$b$", "E'", "U&'", '"', "é", "_", "'\n'",
          "' --x\n'", "' /*\n*/'"]
ENDS = ["'", "'", "", "$$", "$a$"]
LITERALS = (3, 4, 5)  # SQL_STRING, SQL_BITS, SQL_NUMBER


class Token(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("text", ctypes.c_void_p), ("len", ctypes.c_size_t),
                ("param", ctypes.c_int)]


class Lexer(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("pos", ctypes.c_void_p), ("end", ctypes.c_void_p),
                ("standard_strings", ctypes.c_bool)]


class Buf(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("off", ctypes.c_size_t), ("len", ctypes.c_size_t),
                ("cap", ctypes.c_size_t), ("failed", ctypes.c_bool)]


@pytest.fixture(scope="module")
def lexer(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("lexer") / "lexer.so")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-std=gnu11", "-D_GNU_SOURCE",
                    "-I" + os.path.join(ROOT, "include"), "-o", path,
                    os.path.join(ROOT, "src/wire/sqllex.c"),
                    *glob.glob(os.path.join(ROOT, "src/base/*.c"))], check=True)
    lib = ctypes.CDLL(path)
    lib.sql_lex_init.argtypes = [ctypes.POINTER(Lexer), ctypes.c_char_p, ctypes.c_size_t,
                                 ctypes.c_bool]
    lib.sql_token_value.argtypes = [ctypes.POINTER(Token), ctypes.c_bool, ctypes.POINTER(Buf)]
    lib.sql_token_value.restype = ctypes.c_bool
    return lib


def value_of(lib, text, standard):
    """The value if the text is one literal, else None."""
    lx, token, out = Lexer(), Token(), Buf()
    lib.sql_lex_init(lx, text, len(text), standard)
    lib.sql_lex_next(ctypes.byref(lx), ctypes.byref(token))
    if token.kind not in LITERALS or not lib.sql_token_value(token, standard, out):
        return None
    value = ctypes.string_at(out.data, out.len).decode() if out.len else ""
    lib.buf_free(ctypes.byref(out))
    lib.sql_lex_next(ctypes.byref(lx), ctypes.byref(token))
    return value if token.kind == 0 else None


def value_in_postgres(cur, text):
    try:
        cur.execute(b"SELECT (\n" + text + b"\n)::text")
        return cur.fetchone()[0]
    except psycopg2.Error:
        return None


@pytest.mark.parametrize("standard", [True, False])
def test_literals_mean_the_same(cluster, lexer, standard):
    rnd = random.Random(7)
    con = psycopg2.connect(cluster.dsn())
    con.autocommit = True
    good = 0
    with con.cursor() as cur:
        cur.execute("SET standard_conforming_strings = %s; SET escape_string_warning = off;"
                    "SET backslash_quote = on", (standard,))
        for _ in range(4000):
            text = rnd.choice(STARTS) + "".join(rnd.choices(PIECES, k=rnd.randint(0, 7)))
            text = (text + rnd.choice(ENDS)).encode()
            ours, theirs = value_of(lexer, text, standard), value_in_postgres(cur, text)
            # 00-- is 0 as a number: the type, not the lexer, changes it
            if theirs is not None and text[:1].isdigit():
                continue
            assert ours == theirs, text
            good += ours is not None
    con.close()
    assert good > 300
