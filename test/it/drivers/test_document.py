"""doc/drivers.md says what is tested, and its examples are the tested ones."""

from catalogue import DRIVERS
from document import PATH, example, text


def test_document_is_current():
    with open(PATH, encoding="utf-8") as f:
        assert f.read() == text(), "write it anew: /usr/bin/python3 test/it/drivers/document.py"


def test_every_example_is_one():
    for d in DRIVERS:
        if d.example:
            for part, verb in (("producer", "QUEUE PUSH"), ("worker", "QUEUE TAKE")):
                assert verb in example(d, part), d.name
