"""Pages of docs: their tables, their pictures, and which of them bench/figures.py makes."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# A number that stands by itself: neither the 12 of fat12 nor the 8 of random:8.
NUMBER = re.compile(r"(?<![\w.:=-])\d+(?:,\d{3})*(?![\w.,]*\w)")
FIGURES = {}


class Table:
    """A table of a page: the first one behind a text of the page. `others` matches the labels of
    rows that are not made here: published ones, and those of other programs. `slow` says why a
    quick run looks at no row."""

    def __init__(self, page, behind, others=None, slow=None):
        self.page = ROOT / "docs" / page
        self.behind = behind
        self.others = others
        self.slow = slow
        lines = self.page.read_text().splitlines()
        start = self._start(lines)
        head = next(n for n in range(start, len(lines)) if lines[n].startswith("|"))
        end = next(n for n in range(head, len(lines) + 1) if n == len(lines) or not lines[n].startswith("|"))
        self.rows = {}
        for n in range(head + 2, end):
            label, *cells = (cell.strip() for cell in lines[n].strip("|").split("|"))
            self.rows[label] = cells
        self.head = [cell.strip() for cell in lines[head].strip("|").split("|")]
        self.line = head + 1

    def _start(self, lines):
        # The text may be wrapped.
        words = map(re.escape, self.behind.split())
        text = "\n".join(line.rstrip("\n") for line in lines)
        found = re.search(r"\s+".join(words), text)
        if found is None:
            sys.exit(f"{self.page}: nowhere says: {self.behind}")
        return text.count("\n", 0, found.start())

    def replace(self, label, cells):
        lines = self.page.read_text().splitlines(keepends=True)
        start = self._start(lines)
        at = next(n for n in range(start, len(lines)) if lines[n].startswith(f"| {label} |"))
        lines[at] = f"| {label} | {' | '.join(cells)} |\n"
        self.page.write_text("".join(lines))
        self.rows[label] = cells

    def __str__(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}: {' | '.join(self.head)}"


class Picture:
    """A picture of docs."""

    def __init__(self, path):
        self.path = ROOT / "docs" / path

    def __str__(self):
        return str(self.path.relative_to(ROOT))


class Figure:
    """What makes some tables and pictures."""

    def __init__(self, make, tables, pictures):
        self.make, self.tables, self.pictures = make, tables, pictures

    def places(self):
        return [*self.tables, *self.pictures]


def figure(name, *places):
    """Enters a function as the maker of tables and pictures, which it is given in this order."""

    def enter(make):
        tables = [place for place in places if isinstance(place, Table)]
        pictures = [place for place in places if isinstance(place, Picture)]
        FIGURES[name] = Figure(make, tables, pictures)
        return make

    return enter


def filled(cell, values):
    """A cell with these values in the place of its first numbers."""
    values = iter(values)

    def number(found):
        value = next(values, None)
        return found.group() if value is None else f"{value:,}"

    return NUMBER.sub(number, cell)


class Report:
    """Compares what was made with the pages, and writes it there unless it only checks."""

    def __init__(self, check, quick, scratch):
        self.check, self.quick, self.scratch = check, quick, scratch
        self.stale = []
        self._seen = set()

    def make(self, one):
        """Makes a figure, and requires that all rows were looked at, or in a quick run one of
        each table."""
        one.make(self, *one.places())
        for table in one.tables:
            if self.quick and table.slow:
                continue
            rows = {label for label in table.rows if not (table.others and re.search(table.others, label))}
            unseen = rows - {label for where, label in self._seen if where is table}
            if unseen == rows if self.quick else unseen:
                sys.exit(f"{table}: not looked at: {', '.join(sorted(unseen))}")

    def row(self, table, label, cells):
        """Compares a row with its page's, and writes it there; None stands for any text."""
        self._seen.add((table, label))
        held = table.rows.get(label)
        if held is None:
            sys.exit(f"{table}: has no row {label}")
        cells = [old if new is None else new for old, new in zip(held, cells, strict=True)]
        if held == cells:
            return
        self.stale.append(f"{table.page.relative_to(ROOT)}: {label}: {held}, now {cells}")
        if not self.check:
            table.replace(label, cells)

    def picture(self, picture, made):
        if picture.path.exists() and picture.path.read_bytes() == made:
            return
        self.stale.append(str(picture))
        if not self.check:
            picture.path.write_bytes(made)
