"""Structured records: CSV, JSON, logs, tables and the like, of several kinds of things, with values that depend on each other.

A template is thing x format x layout (which fields, in which order). Dates and numbers run on from row to row, totals follow from
quantity and price, so that there is structure to learn beside the syntax.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial

from expertmiss.corpora.generators.base import Problem, Template, rng

Row = dict[str, str | int | float | bool]
FIRST = [
    "Anna",
    "Ben",
    "Carla",
    "David",
    "Emma",
    "Felix",
    "Greta",
    "Hugo",
    "Iris",
    "Jonas",
    "Klara",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
    "Paul",
    "Rosa",
    "Sam",
    "Tina",
    "Umar",
    "Vera",
    "Yara",
]
LAST = [
    "Abel",
    "Brandt",
    "Costa",
    "Dietz",
    "Evans",
    "Farah",
    "Gruber",
    "Hall",
    "Ito",
    "Jansen",
    "Khan",
    "Lopez",
    "Moreau",
    "Novak",
    "Okoro",
    "Petit",
    "Quinn",
    "Rossi",
    "Silva",
    "Tanaka",
]
CITIES = [
    "Athens",
    "Berlin",
    "Cairo",
    "Dublin",
    "Evora",
    "Fukuoka",
    "Geneva",
    "Hanoi",
    "Izmir",
    "Jakarta",
    "Kyiv",
    "Lima",
    "Madrid",
    "Nairobi",
    "Oslo",
    "Porto",
    "Quito",
    "Riga",
]
GOODS = [
    "lamp",
    "chair",
    "desk",
    "kettle",
    "bicycle",
    "printer",
    "carpet",
    "mirror",
    "backpack",
    "blanket",
    "camera",
    "clock",
    "drill",
    "fan",
    "heater",
    "jacket",
]
SERVICES = ["auth", "billing", "cache", "gateway", "mailer", "orders", "payments", "reports", "scheduler", "search", "sessions", "uploads"]
LEVELS = ("DEBUG", "INFO", "INFO", "INFO", "INFO", "WARNING", "ERROR")
WEATHER = ["sunny", "cloudy", "rain", "fog", "snow", "storm", "windy"]
TITLES = [
    "The Long Road",
    "Winter Light",
    "A Small House",
    "Stone and Water",
    "The Last Train",
    "Blue Harbour",
    "Seven Days",
    "The Quiet Room",
]


def _date(day: int) -> str:
    month, day = divmod(day % 336, 28)
    return f"2024-{month + 1:02d}-{day + 1:02d}"


def _time(second: int) -> str:
    return f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def _order(r: random.Random, i: int, start: int) -> Row:
    quantity, price = r.randint(1, 9), r.randint(2, 50)
    return {"order_id": start + i, "date": _date(start + i // 3), "customer": f"{r.choice(FIRST)} {r.choice(LAST)}", "item": r.choice(GOODS),
            "quantity": quantity, "price": price, "total": quantity * price, "paid": r.random() < 0.8}  # fmt: skip


def _user(r: random.Random, i: int, start: int) -> Row:
    first, last = r.choice(FIRST), r.choice(LAST)
    return {"id": start + i, "name": f"{first} {last}", "email": f"{first.lower()}.{last.lower()}@example.org", "city": r.choice(CITIES),
            "age": r.randint(18, 79), "active": r.random() < 0.7, "role": r.choice(["admin", "editor", "viewer", "viewer"])}  # fmt: skip


def _sensor(r: random.Random, i: int, start: int) -> Row:
    temperature = 20 + (i % 12 - 6) / 2 + r.randint(-3, 3) / 10
    return {"time": _time(start * 60 + 300 * i), "sensor": f"s{r.randint(1, 6)}", "temperature": round(temperature, 1),
            "humidity": 50 + i % 9 + r.randint(0, 3), "battery": max(1, 100 - i // 2), "status": "ok" if temperature < 23 else "high"}  # fmt: skip


def _flight(r: random.Random, i: int, start: int) -> Row:
    origin, target = r.sample(CITIES, 2)
    return {"flight": f"{r.choice(['AX', 'BQ', 'KL', 'ZN'])}{r.randint(100, 999)}", "from": origin, "to": target, "date": _date(start + i // 5),
            "departure": _time(18000 + 900 * (i % 60))[:5], "gate": f"{r.choice('ABCD')}{r.randint(1, 30)}", "delay": r.choice([0, 0, 0, 5, 15, 40])}  # fmt: skip


def _book(r: random.Random, i: int, start: int) -> Row:
    return {"number": start + i, "title": r.choice(TITLES), "author": f"{r.choice(LAST)}, {r.choice(FIRST)}", "year": r.randint(1950, 2023),
            "pages": r.randint(90, 600), "lent": r.random() < 0.4, "shelf": f"{r.choice('ABCDEF')}-{r.randint(1, 20)}"}  # fmt: skip


def _request(r: random.Random, i: int, start: int) -> Row:
    status = r.choice([200, 200, 200, 200, 201, 304, 404, 500])
    return {"time": f"{_date(start)}T{_time(start * 7 + 3 * i + r.randint(0, 2))}Z", "level": "ERROR" if status == 500 else r.choice(LEVELS[:5]),
            "service": r.choice(SERVICES), "path": f"/{r.choice(GOODS)}s/{r.randint(1, 99)}", "status": status, "milliseconds": r.randint(2, 250)}  # fmt: skip


def _match(r: random.Random, i: int, start: int) -> Row:
    home, away = r.sample(CITIES, 2)
    a, b = r.randint(0, 4), r.randint(0, 4)
    return {"round": start + i // 6, "home": home, "away": away, "home_goals": a, "away_goals": b,
            "winner": home if a > b else away if b > a else "draw", "attendance": 1000 * r.randint(3, 60)}  # fmt: skip


def _payment(r: random.Random, i: int, start: int) -> Row:
    net = r.randint(1, 40) * 10
    return {"invoice": f"INV-{start + i:05d}", "due": _date(start + 2 * i), "company": f"{r.choice(LAST)} {r.choice(['Ltd', 'GmbH', 'SA', 'Inc'])}",
            "net": net, "tax": net // 5, "gross": net + net // 5, "state": r.choice(["open", "paid", "paid", "overdue"])}  # fmt: skip


def _weather(r: random.Random, i: int, start: int) -> Row:
    low = 4 + i % 10 + r.randint(-2, 2)
    return {"day": _date(start + i), "city": r.choice(CITIES), "low": low, "high": low + r.randint(3, 10), "sky": r.choice(WEATHER),
            "wind": r.randint(0, 60), "rain": r.choice([0, 0, 0, 2, 5, 12])}  # fmt: skip


def _task(r: random.Random, i: int, start: int) -> Row:
    return {"key": f"{r.choice(['WEB', 'API', 'OPS'])}-{start + i}", "summary": f"{r.choice(['Fix', 'Test', 'Move', 'Document'])} the {r.choice(SERVICES)} service",
            "owner": r.choice(FIRST), "state": r.choice(["todo", "doing", "review", "done"]), "points": r.choice([1, 2, 3, 5, 8]),
            "sprint": start % 20 + i // 8}  # fmt: skip


THINGS: dict[str, Callable[[random.Random, int, int], Row]] = {
    "orders": _order, "users": _user, "sensors": _sensor, "flights": _flight, "books": _book, "requests": _request, "matches": _match,
    "payments": _payment, "weather": _weather, "tasks": _task,
}  # fmt: skip


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _delimited(rows: list[Row], thing: str, separator: str) -> str:
    lines = [separator.join(rows[0])]
    lines += [separator.join(f'"{v}"' if separator in _plain(v) else _plain(v) for v in row.values()) for row in rows]
    return "\n".join(lines) + "\n"


def _json_lines(rows: list[Row], thing: str) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _json(rows: list[Row], thing: str) -> str:
    return json.dumps({thing: rows}, indent=2) + "\n"


def _yaml(rows: list[Row], thing: str) -> str:
    blocks = ["\n".join(f"{'- ' if i == 0 else '  '}{key}: {_plain(value)}" for i, (key, value) in enumerate(row.items())) for row in rows]
    return f"{thing}:\n" + "\n".join(blocks) + "\n"


def _markdown(rows: list[Row], thing: str) -> str:
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + " --- |" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(map(_plain, row.values())) + " |" for row in rows]) + "\n"


def _table(rows: list[Row], thing: str) -> str:
    widths = {key: max(len(key), *(len(_plain(row[key])) for row in rows)) for key in rows[0]}
    lines = ["  ".join(key.ljust(width) for key, width in widths.items()), "  ".join("-" * width for width in widths.values())]
    lines += [
        "  ".join(
            _plain(row[key]).rjust(w) if isinstance(row[key], int | float) else _plain(row[key]).ljust(w) for key, w in widths.items()
        )
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _sql(rows: list[Row], thing: str) -> str:
    columns = ", ".join(rows[0])
    values = [", ".join(_plain(v) if isinstance(v, int | float) else f"'{v}'" for v in row.values()) for row in rows]
    return "".join(f"INSERT INTO {thing} ({columns}) VALUES ({line});\n" for line in values)


def _ini(rows: list[Row], thing: str) -> str:
    return "\n".join(
        f"[{thing}.{i}]\n" + "".join(f"{key} = {_plain(value)}\n" for key, value in row.items()) for i, row in enumerate(rows, 1)
    )


def _log(rows: list[Row], thing: str) -> str:
    return "".join(f"INFO {thing}: " + " ".join(f"{key}={json.dumps(value)}" for key, value in row.items()) + "\n" for row in rows)


def _xml(rows: list[Row], thing: str) -> str:
    body = "".join(
        "  <row>\n" + "".join(f"    <{key}>{_plain(value)}</{key}>\n" for key, value in row.items()) + "  </row>\n" for row in rows
    )
    return f"<{thing}>\n{body}</{thing}>\n"


FORMATS: dict[str, Callable[[list[Row], str], str]] = {
    "csv": partial(_delimited, separator=","), "semicolon": partial(_delimited, separator=";"), "tsv": partial(_delimited, separator="\t"),
    "jsonl": _json_lines, "json": _json, "yaml": _yaml, "markdown": _markdown, "table": _table, "sql": _sql, "ini": _ini, "log": _log, "xml": _xml,
}  # fmt: skip
LAYOUTS = 6


def _block(r: random.Random, thing: str, form: str, layout: int) -> Problem:
    """Some 20 rows; the layout fixes which fields are kept and in which order."""
    start = r.randint(1, 900)
    rows = [THINGS[thing](r, i, start) for i in range(r.randint(12, 24))]
    keys = list(rows[0])
    chosen = rng("records-layout", thing, layout).sample(keys, len(keys) - layout % 3)
    return Problem("", FORMATS[form]([{key: row[key] for key in chosen} for row in rows], thing) + "\n")


def templates() -> list[Template]:
    """Every thing x format x layout."""
    return [
        Template(f"records/{thing}-{form}-{layout}", partial(_block, thing=thing, form=form, layout=layout))
        for thing in THINGS
        for form in FORMATS
        for layout in range(LAYOUTS)
    ]
