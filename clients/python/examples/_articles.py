"""What the examples retrieve from: a few articles, and a search by shared words."""

from __future__ import annotations

QUESTION = "In which town was the architect of the Halvorn lighthouse born?"

ARTICLES = [
    ("Halvorn lighthouse", "The lighthouse at Halvorn was built in 1871 by the architect Mirela Tosk."),
    ("Herring feast", "Each June the town of Halvorn celebrates the herring with music and a procession of boats."),
    ("Mirela Tosk", "Mirela Tosk, the architect of the Halvorn lighthouse, was born in the town of Venlach."),
    ("Lighthouse lenses", "A Fresnel lens bends the light of a small lamp into a narrow beam."),
    ("Ferry timetable", "The ferry to Sandrey leaves at nine, at noon and at four, in summer also at seven."),
]


def search(query: str, k: int) -> list[dict[str, object]]:
    """The `k` articles that share most words with the query: a stand-in for a real index."""
    words = set(query.lower().strip("?").split())

    def shared(article: tuple[str, str]) -> int:
        return len(words & set(" ".join(article).lower().replace(".", "").split()))

    found = sorted(range(len(ARTICLES)), key=lambda i: -shared(ARTICLES[i]))[:k]
    return [
        {"docid": str(i), "score": float(shared(ARTICLES[i])), "title": ARTICLES[i][0], "text": ARTICLES[i][1]}
        for i in found
    ]
