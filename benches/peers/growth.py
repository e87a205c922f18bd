"""The part of the report on how the cost grows: a table for each series of cases, and bars of the time per token."""

from statistics import median

from cases import CASES, SERIES
from tables import rates, spread, table

WIDTH = 40  # characters of the longest bar


def per_token(samples):
    """Milliseconds."""
    return median(1000 * s["seconds"] / s["tokens"] for s in samples)


def growth(names, samples):
    """Series with less than two points are left out."""
    parts = [part for series in SERIES for part in one(series, names, samples)]
    if not parts:
        return ""
    about = (
        "Time, and time per token: of the prompt, and for a decode of the steps. Ratios are of rates: above 1 qrae is faster. "
        "Some rows are also in the table above."
    )
    return "\n".join(["## How the cost grows\n", about + "\n", *parts])


def one(series, names, samples):
    points = {number: samples[key] for number, key in series.points.items() if key in samples}
    if len(points) < 2:
        return []
    # peers that do this work in every case of the series; in others they may have done another
    left_out = {name for c in CASES if c.key in series.points.values() for name in c.without}
    names = [n for n in names if n not in left_out and all(n in taken for taken in points.values())]
    seconds = {key: samples.get(f"second-{key}", {}).get("qrae") for key in series.points.values()}
    with_second = any(seconds.values())
    rows = []
    for number, taken in points.items():
        cells = [c for n in names for c in (spread([s["seconds"] for s in taken[n]], 2), f"{per_token(taken[n]):.2f}")]
        rate = {n: median(rates(taken[n])) for n in names}
        ratios = [f"{rate['qrae'] / rate[n]:.2f}" for n in names if n != "qrae"]
        again = seconds[series.points[number]]
        second = [spread([s["seconds"] for s in again], 3) if again else ""] if with_second else []
        rows.append([f"{number:,}", *cells, *ratios, *second])
    header = [
        series.unit,
        *[title for n in names for title in (f"{n}, s", "ms/token")],
        *[f"qrae ÷ {n}" for n in names if n != "qrae"],
        *["qrae, a second query, s"] * with_second,
    ]
    return [f"### {series.title}\n", table(header, rows), bars(points, names)]


def bars(points, names):
    """Time per token as text; the longest bar is the largest of the series."""
    values = {(name, number): per_token(taken[name]) for name in names for number, taken in points.items()}
    most = max(values.values())
    column = max(len(n) for n in names)
    lines = [
        f"{name:<{column}} {number:>6,}  {'█' * max(1, round(WIDTH * value / most))} {value:.2f} ms/token"
        for (name, number), value in values.items()
    ]
    return "\n".join(["```text", *lines, "```\n"])
