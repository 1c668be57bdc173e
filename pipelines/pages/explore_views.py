"""What the explore page shows: top keys and totals, groups, changes between two sketches, keys over dates."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from hushgram.errors import ParameterError, printable
from hushgram.numbers import counted, plus_minus
from hushgram.pipelines.pages.explore_questions import (
    LINES,
    MAX_KEYS,
    SEPARATORS,
    Answer,
    Cell,
    KeyFile,
    Question,
    as_estimates,
    at_once,
    change_cells,
    columns_of,
    count_cell,
    direction,
    draw,
    group_of,
    heading,
    percent,
    power_of_two,
    short_key,
    show_key,
    sort_rows,
    text_of,
    total_cell,
    total_change_cells,
)  # fmt: skip
from hushgram.pipelines.pages.tables import everything
from hushgram.pipelines.terminal import key_warnings, resolved_sums, rounded
from hushgram.sketch.over_time import compare, date_of, series
from hushgram.sketch.reader import Sketch, Total

__all__ = ["Explorer"]

_MAX_FILES = 4
_MAX_GROUPS = 200
_SIDE_BY_SIDE = 4  # sketches in a table; CSV has all
_OPEN = 3  # keys that are drawn over dates where none is asked for


class Explorer:
    """Answers questions about some sketches, each with a name; in order of their dates where all have one."""

    def __init__(self, sketches: Sequence[tuple[str, Sketch]], files: Sequence[KeyFile] = ()) -> None:
        named = [(printable(name), sketch) for name, sketch in sketches]
        try:
            dates = [date_of(sketch) for _, sketch in named]
            order = sorted(range(len(named)), key=lambda i: dates[i])
            named, self.dated = [named[i] for i in order], len(named) > 1 and len(set(dates)) == len(dates)
        except ParameterError:
            self.dated = False
        self.sketches = named
        self.names = [name for name, _ in named]
        self.files = {file.id: file for file in files}
        self._kept = len(self.files)
        self.answer = functools.lru_cache(32)(self._answer)

    # --- what can be asked ------------------------------------------------------------------------------------

    def add(self, file: KeyFile) -> None:
        """Keep a file that was sent; the oldest one is dropped where there are many."""
        self.files.pop(file.id, None)
        while len(self.files) >= self._kept + _MAX_FILES:
            del self.files[list(self.files)[self._kept]]
        self.files[file.id] = file
        self.answer.cache_clear()

    def views(self) -> list[str]:
        """Return the views that these sketches have."""
        several = len(self.sketches) > 1
        return ["keys", "groups", *(["changes"] if several else []), *(["dates"] if self.dated else [])]

    def suggest(self, text: str, file: str = "", limit: int = 10) -> list[str]:
        """Return known keys that contain a text, in any case: those that begin with it first, larger ones first."""
        known, wanted = self._known(file), text.lower()
        starts: list[str] = []
        inside: list[str] = []
        for key, low in known:
            at = low.find(wanted)
            if at >= 0:
                (inside if at else starts).append(key)
            if len(starts) >= limit:
                break
        return (starts + inside)[:limit]

    def ways_to_group(self, question: Question) -> list[tuple[str, str]]:
        """Return the ways to group keys, by value and title: their columns, and prefixes up to a separator."""
        sample = (self._chosen(question) or self._named)[:1_000]
        parts = [columns_of(key) for key in sample]
        if sample and all(len(part) > 1 for part in parts):
            return [(str(i + 1), f"column {i + 1} of the key") for i in range(min(map(len, parts)))]
        out = []
        for by in (f"{sign}{number}" for sign in SEPARATORS for number in (1, 2, 3)):
            groups = {group_of(key, by) for key in sample}
            if 1 < len(groups) < len(sample):
                shortest = min(groups, key=lambda group: (not group.endswith(by[0]), len(group)))
                out.append((by, f"prefix such as {show_key(shortest)[:40]}"))
        return out

    # --- answers ------------------------------------------------------------------------------------------------

    def _answer(self, question: Question, whole: bool = False) -> Answer:
        """Return the answer; with `whole`, all of its rows, for CSV."""
        if not self.sketches:
            raise ParameterError("there is no sketch to ask")
        if question.view not in self.views():
            raise ParameterError(
                "changes need two sketches or more; start hushgram explore with them"
                if question.view == "changes"
                else "a line over dates needs two sketches or more with different dates in their names"
            )
        return {
            "keys": self._keys, "groups": self._groups, "changes": self._changes, "dates": self._dates
        }[question.view](question, whole)  # fmt: skip

    def _keys(self, question: Question, whole: bool) -> Answer:
        keys = self._chosen(question)
        if keys is None:
            return self._top(question, whole)
        shown = self.sketches if whole else self.sketches[-_SIDE_BY_SIDE:]
        among = power_of_two(len(keys))
        columns: dict[str, Any] = {"key": keys}
        for name, sketch in shown:
            found = sketch.estimate(keys, level=question.level, among=among)
            columns |= {self._title(name, c): found[c] for c in found.column_names[1:]}
        data = pa.table(columns)
        sort = question.sort or ("" if question.k else f"-{self._title(shown[-1][0], 'estimate')}")
        answer = self._listed(data, shown, sort, question, whole)
        answer.caption = f"{counted(len(keys), 'key')}. {at_once(question)}"
        answer.foot = [[Cell(f"total of {counted(len(keys), 'key')}", kind="key")]]
        answer.foot[0] += [total_cell(functools.partial(s.total, keys, question.level), s) for _, s in shown]
        answer.notes.append(
            "The interval of a total holds by itself, for keys chosen without looking at the release."
        )
        answer.warnings = list(dict.fromkeys(w for _, s in shown for w in key_warnings(keys, s)))
        return answer

    def _top(self, question: Question, whole: bool) -> Answer:
        """Return what one sketch lists, largest first, with the estimates of the other sketches beside it."""
        shown = self.sketches if whole else self.sketches[-_SIDE_BY_SIDE:]
        ranks = {self._title(name, "estimate"): name for name, _ in shown}
        sort = question.sort or f"-{list(ranks)[-1]}"
        if sort.lstrip("-") not in {"key", *ranks}:
            raise ParameterError(f"there is no column {sort.lstrip('-')[:60]!r} to sort by")
        rank = ranks.get(sort.lstrip("-"), shown[-1][0])
        table = self._heavy(rank, question.level, question.file)
        number, named = table.num_rows, "key" in table.column_names
        if sort.lstrip("-") == "key":
            table = table.sort_by([("key" if named else "fingerprint", direction(sort))])
        elif not sort.startswith("-"):
            table = table.take(pa.array(np.arange(number)[::-1]))
        table = table.slice(0, MAX_KEYS if whole else question.rows)
        keys = table["key"].to_pylist() if named else [None] * table.num_rows
        texts = [text_of(key) if key is not None else None for key in keys]
        known = [i for i, key in enumerate(keys) if key is not None]
        columns: dict[str, Any] = {"key": pa.array(texts, pa.string())}
        if None in keys:
            columns["fingerprint"] = table["fingerprint"]
        for name, sketch in shown:
            if name == rank:
                found = as_estimates(table)
            else:
                asked = [keys[i] for i in known]
                got = sketch.estimate(asked, level=question.level, among=power_of_two(number))
                places = np.full(len(keys), len(known))
                places[known] = np.arange(len(known))
                found = got.take(pa.array(places, mask=places == len(known)))
            columns |= {
                self._title(name, c): found[c] for c in ("estimate", "low", "high", "resolved", "source")
            }
        data = pa.table(columns)
        answer = self._listed(data, shown, "", question, True)
        answer.sort, answer.number = sort, number
        sketch = dict(self.sketches)[rank]
        what = "named keys" if sketch.plan.selection.texts else "listed keys"
        answer.caption = f"The {min(len(answer.rows), number):,} largest of {number:,} {what}"
        answer.caption += f" of {rank}. " if len(shown) > 1 else ". "
        answer.caption += f"Intervals hold for all of them at once at {percent(question.level)}."
        rest = [
            total_cell(lambda: sketch.others(question.level, len(answer.rows)), sketch)
            if name == rank else Cell("", kind="soft")
            for name, _ in shown
        ]  # fmt: skip
        answer.foot = [[Cell("all other keys", kind="key"), *rest]] if number else []
        if len(shown) > 1:
            whole_of = [
                total_cell(functools.partial(self._everything, name, question.level), one)
                for name, one in shown
            ]
            answer.foot.append([Cell("all keys together", kind="key"), *whole_of])
        if not number:
            answer.notes.append("This release lists no key. Look up keys, or load a key file.")
        elif None in keys:
            answer.notes.append(
                f"{counted(len(keys) - len(known), 'key')} shown by fingerprint: this release holds no texts."
                " Load a key file to name keys that it has."
            )
        answer.tiles = self._tiles()
        return answer

    def _listed(
        self, data: pa.Table, shown: list[tuple[str, Sketch]], sort: str, question: Question, whole: bool
    ) -> Answer:
        """Return a table with a row per key and a column per sketch."""
        data = sort_rows(data, sort)
        part = data if whole else data.slice(0, question.rows)
        titles = [
            ("key", "key"),
            *((heading(name, s, shown), self._title(name, "estimate")) for name, s in shown),
        ]
        rows = [[self._key(key, question)] for key in part["key"].to_pylist()]
        if "fingerprint" in part.column_names:
            for row, print_ in zip(rows, part["fingerprint"].to_pylist(), strict=True):
                row[0] = row[0] if row[0].text else Cell(print_, kind="key print")
        self._fill(rows, part, shown)
        notes = []
        if len(self.sketches) > len(shown):
            notes.append(
                f"The last {len(shown)} of {len(self.sketches)} sketches are shown; the CSV file has all."
            )
        return Answer(data, titles, rows, notes=notes, number=data.num_rows, sort=sort)

    def _fill(self, rows: list[list[Cell]], part: pa.Table, shown: list[tuple[str, Sketch]]) -> None:
        """Add a cell per sketch to each row."""
        for name, sketch in shown:
            names = (self._title(name, c) for c in ("estimate", "low", "high"))
            numbers = [part[c].to_pylist() for c in names]
            top = max((high for high in numbers[2] if high is not None), default=1.0) or 1.0
            for row, *three in zip(rows, *numbers, strict=True):
                row.append(count_cell(*three, finest=sketch.per_count, top=top if len(shown) == 1 else 0.0))

    def _groups(self, question: Question, whole: bool) -> Answer:
        chosen = self._chosen(question)
        keys = self._named if chosen is None else chosen
        if not keys:
            raise ParameterError("there are no keys to group; look up keys, or load a key file")
        keys = [key for key in keys if key.startswith(question.prefix)]
        if not keys:
            raise ParameterError(f"no key begins with {question.prefix!r}")
        ways = self.ways_to_group(question)
        by = question.by or (ways[0][0] if ways else "all")
        groups: dict[str, list[str]] = {}
        for key in keys:
            groups.setdefault(group_of(key, by), []).append(key)
        largest = sorted(groups.items(), key=lambda pair: -len(pair[1]))[:_MAX_GROUPS]
        shown = self.sketches if whole else self.sketches[-_SIDE_BY_SIDE:]
        columns: dict[str, Any] = {
            "group": [group for group, _ in largest], "keys": [len(members) for _, members in largest],
        }  # fmt: skip
        for name, sketch in shown:
            members = [self._told_by(sketch, members) for _, members in largest]
            sums = [
                resolved_sums(total) if some else (None, None, None)
                for total, some in zip(sketch.totals(members, question.level), members, strict=True)
            ]
            for part, numbers in zip(("estimate", "low", "high"), zip(*sums, strict=True), strict=True):
                columns[self._title(name, part)] = pa.array(numbers, pa.float64())
        sort = question.sort or f"-{self._title(shown[-1][0], 'estimate')}"
        data = sort_rows(pa.table(columns), sort)
        part = data if whole else data.slice(0, question.rows)
        rows = [
            [Cell(printable(group), kind="key"), Cell(f"{count:,}")]
            for group, count in zip(part["group"].to_pylist(), part["keys"].to_pylist(), strict=True)
        ]
        self._fill(rows, part, shown)
        titles = [("group", "group"), ("keys", "keys")]
        titles += [(heading(name, s, shown), self._title(name, "estimate")) for name, s in shown]
        answer = Answer(data, titles, rows, number=data.num_rows, sort=sort)
        answer.caption = f"Totals of {counted(len(keys), 'key')} in {counted(len(groups), 'group')};"
        answer.caption += f" each interval holds by itself at {percent(question.level)}."
        if len(groups) > _MAX_GROUPS:
            answer.warnings.append(f"{len(groups):,} groups: the {_MAX_GROUPS} with the most keys are shown.")
        if chosen is None:
            answer.notes.append("Named keys alone: keys of a group without a name are not in its total.")
        return answer

    def _changes(self, question: Question, whole: bool) -> Answer:
        before, after = question.before or self.names[-2], question.after or self.names[-1]
        for name in (before, after):
            if name not in self.names:
                raise ParameterError(
                    f"there is no sketch {name[:60]!r} here; there are {', '.join(self.names[-5:])}"
                )
        if before == after:
            raise ParameterError(f"{before} is compared with itself; choose two sketches")
        first, second = dict(self.sketches)[before], dict(self.sketches)[after]
        keys = self._chosen(question)
        for name, sketch in ((before, first), (after, second)):
            if keys is None and not sketch.plan.selection.texts:
                raise ParameterError(f"{name} lists fingerprints, not keys; look up keys, or load a key file")
        found = compare(first, second, keys, question.rate, question.level)
        data, compared = found.table.drop_columns(["before", "after"]), found.table.num_rows
        texts, level, among = data["key"].to_pylist(), question.level, power_of_two(compared)
        for at, (name, sketch) in enumerate((("before", first), ("after", second))):
            got = sketch.estimate(texts, level=level, among=among)
            for i, c in enumerate(("estimate", "low", "high", "resolved")):
                data = data.add_column(2 + 4 * at + i, f"{name}_{c}".replace("_estimate", ""), got[c])
        if not question.every:
            data = data.filter(pa.compute.not_equal(data["change"], ""))
        data = sort_rows(data, question.sort)
        part = data if whole else data.slice(0, question.rows)
        rows = [
            [self._key(row["key"], question), *change_cells(row, first, second)] for row in part.to_pylist()
        ]
        titles = [
            ("key", "key"), ("change", "change"), (before, "before"), (after, "after"),
            ("difference", "difference"), ("ratio", "ratio"),
        ]  # fmt: skip
        answer = Answer(data, titles, rows, number=data.num_rows, sort=question.sort)
        rate = f"{question.rate:.3g}"
        answer.caption = (
            f"{found.found:,} of {counted(compared, 'key')} rose or fell, at a false discovery rate of"
        )
        answer.caption += (
            f" {rate}: of the keys shown as changed, an expected share of at most {rate} did not change."
        )
        if not found.found and not question.every:
            answer.notes.append(
                "No key changed by more than the noise of both sketches. All compared keys can be shown."
            )
        total = total_change_cells(keys, level, first, second) if keys else []
        if total:
            answer.foot = [[Cell(f"total of {counted(compared, 'key')}", kind="key"), *total]]
        if found.differs:
            answer.warnings.append(
                f"Parameters differ, and counts may differ for that alone: {found.differs}."
            )
        return answer

    def _dates(self, question: Question, whole: bool) -> Answer:
        chosen = self._chosen(question)
        keys = self._named[:_OPEN] if chosen is None else chosen
        if not keys:
            raise ParameterError("no key to draw; look up keys, or load a key file")
        if question.sort not in ("", "date", "-date"):
            raise ParameterError(f"there is no column {question.sort[:60]!r} to sort by")
        drawn = keys if whole else keys[: len(LINES)]
        found = series([sketch for _, sketch in self.sketches], drawn, question.level)
        answer = Answer(found.table, sort=question.sort or "date")
        if whole:
            return answer
        titles = [*map(show_key, drawn), "total of these keys", "all keys without a name"]
        before = "" if question.alone else "smoothed_"
        names = ("estimate" if question.alone else "smoothed", f"{before}low", f"{before}high")
        numbers = list(zip(*(found.table[name].to_pylist() for name in names), strict=True))
        told = [three if three[0] is None else resolved_sums(three) for three in numbers]
        wide = len(titles)
        dates, columns = found.table["date"].to_pylist()[::wide], [told[i::wide] for i in range(wide)]
        shown = [
            i for i, column in enumerate(columns)
            if any(low is not None for _, low, _ in column) and (i != len(drawn) or len(drawn) > 1)
        ]  # fmt: skip
        finest = max(sketch.per_count for _, sketch in self.sketches)
        headings = [*map(short_key, drawn), *titles[len(drawn) :]]
        answer.columns = [("date", "date"), *((headings[i], "") for i in shown)]
        answer.rows = [
            [Cell(str(date), kind="key"), *(count_cell(*columns[i][day], finest=finest) for i in shown)]
            for day, date in enumerate(dates)
        ][:: -1 if question.sort == "-date" else 1]
        answer.number = len(answer.rows)
        how = (
            "each date by itself"
            if question.alone
            else "smoothed: each date uses those before and after it too"
        )
        answer.caption = f"Estimates with {percent(question.level)} intervals, {how}."
        answer.chart = draw(dates, list(zip(titles, columns, strict=True))[: len(drawn)])
        if len(keys) > len(drawn):
            answer.notes.append(
                f"The first {len(drawn)} of {len(keys):,} keys are drawn; the CSV file has all."
            )
        if chosen is None:
            answer.notes.append(
                f"The {len(keys)} largest named keys of {self.names[-1]}. Look up keys to see others."
            )
        if found.missing:
            more = f" and {len(found.missing) - 10} more" if len(found.missing) > 10 else ""
            answer.warnings.append(f"No sketch for {', '.join(map(str, found.missing[:10]))}{more}.")
        answer.warnings += [
            f"{date} differs from the first date: {text}." for date, text in found.differs.items()
        ]
        return answer

    # --- inside ---------------------------------------------------------------------------------------------------

    def _file(self, id_: str) -> KeyFile:
        if id_ not in self.files:
            raise ParameterError("the key file of this address is not loaded any more; load it again")
        return self.files[id_]

    def _chosen(self, question: Question) -> list[str] | None:
        """Return the keys that are asked for: those of the address, or of a file that is not too long."""
        if question.k:
            return list(question.k)
        if not question.file or len(self._file(question.file).keys) > MAX_KEYS:
            return None
        return self._file(question.file).keys

    def _title(self, name: str, column: str) -> str:
        return f"{name}: {column}" if len(self.sketches) > 1 else column

    @functools.cached_property
    def _named(self) -> list[str]:
        """Return the texts of the keys that the sketches list, those of the last sketch first, larger ones first."""
        found: dict[str, None] = {}
        for name, sketch in self.sketches[: -_SIDE_BY_SIDE - 1 : -1]:
            if sketch.plan.selection.texts:
                found.update(dict.fromkeys(map(text_of, self._heavy(name, 0.95, "")["key"].to_pylist())))
        return list(found)

    @functools.lru_cache(2)  # noqa: B019  (an explorer lives as long as its process)
    def _known(self, file: str) -> list[tuple[str, str]]:
        """Return all known keys, with their texts in lower case."""
        keys = dict.fromkeys([*self._named, *(self._file(file).keys if file else [])])
        return [(key, key.lower()) for key in keys]

    @functools.lru_cache(16)  # noqa: B019
    def _heavy(self, name: str, level: float, file: str) -> pa.Table:
        """Return what a sketch lists, largest first, with the names that a key file has."""
        names = self._file(file).keys if file else None
        table = dict(self.sketches)[name].heavy(keys=names, level=level)
        return table.sort_by([("value", "descending"), ("fingerprint", "ascending")])

    def _told_by(self, sketch: Sketch, keys: list[str]) -> list[str]:
        """Return the keys of which a sketch has an estimate: all, unless its keys are public."""
        if sketch.plan.layout is not None:
            return keys
        source = sketch.estimate(keys, interval=None)["source"].to_pylist()
        return [key for key, of in zip(keys, source, strict=True) if of != "not listed"]

    def _tiles(self) -> list[tuple[str, str]]:
        """Return the totals of the only sketch."""
        if len(self.sketches) != 1:
            return []
        sketch = self.sketches[0][1]
        limit = f"{sketch.detection_limit().count:,}", f"detection limit ({sketch.measure} of a single key)"
        listed = self._heavy(self.names[0], 0.95, "")
        tiles = [
            (f"{listed.num_rows:,}", "named keys" if sketch.plan.selection.texts else "listed keys"),
            limit,
        ]
        try:
            every = sketch.others(limit=0)
        except ParameterError:  # it was not released
            return tiles
        whole = self._everything(self.names[0], 0.95)
        about, low, high = rounded(whole.estimate, whole.low, whole.high, sketch.per_count)
        what = "sum" if sketch.sums_values else "records"
        return [
            (about, f"{what} after bounding, {low} to {high}"),
            (plus_minus(every.keys, every.keys_error), "different keys"), *tiles,
        ]  # fmt: skip

    @functools.lru_cache(64)  # noqa: B019
    def _everything(self, name: str, level: float) -> Total:
        """Return the total of all keys, where it was released."""
        return everything(dict(self.sketches)[name], level)

    def guarantees(self) -> list[tuple[str, list[str]]]:
        """Return what is guaranteed, and what bounding kept, with the names of the sketches of which it is."""
        found: dict[str, list[str]] = {}
        for name, sketch in self.sketches:
            kept = sketch.kept_in_words()
            more = "" if kept is None else f" {kept[0].upper()}{kept[1:]}."
            found.setdefault(f"{sketch.guarantee.sentence()}{more}", []).append(name)
        return list(found.items())

    def _key(self, key: Any, question: Question) -> Cell:
        if key is None:
            return Cell("", kind="key")
        text = text_of(key)
        link = Question(view="dates", k=(text,), file=question.file).address() if self.dated else ""
        shown, file = show_key(text), self.files.get(question.file)
        title = show_key(file.titles.get(text, "")) if file else ""
        return Cell(shown, title, kind="key", title=printable(text) if shown != text else "", link=link)
