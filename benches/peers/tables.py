"""Numbers and tables as Markdown. Medians, with the smallest and largest in brackets."""

from statistics import median


def spread(values, digits=1):
    values = sorted(values)
    text = f"{median(values):,.{digits}f}"
    return text if len(values) < 2 else f"{text} ({values[0]:,.{digits}f} – {values[-1]:,.{digits}f})"


def rates(samples):
    return [s["tokens"] / s["seconds"] for s in samples]


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"
