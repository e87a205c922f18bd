"""A searcher around a searcher: what the model's attention calls irrelevant comes back as a stub, not as text.

Fits BrowseComp-Plus (`--searcher-type custom`) and anything else that searches with `search(query, k)` and fetches with
`get_document(docid)`; needs no package. Withholding is soft: every hit keeps its docid and title, and the agent can
fetch the whole of it. Tests: `tests/test_browsecomp.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from qrae import _adapters
from qrae._client import Client
from qrae._types import Chunk

Hit = dict[str, Any]
"""`docid`, `text` or `snippet`, and perhaps `score` and `title`."""

_LONGEST_TITLE = 120
"""Characters of a title made of a text's first line."""
_STUB = "{title} [withheld: probably not relevant to this query; get_document has the text]"


class Searcher(Protocol):
    """What is wrapped."""

    def search(self, query: str, *, k: int) -> Sequence[Hit]:
        """The best `k` hits for a query."""

    def get_document(self, docid: str) -> Hit | None:
        """A document as a whole."""


class QraeSearcher:
    """Searches with `inner`, scores its hits for the query, and returns the best with their text, the others as stubs.

    Args:
        inner: The searcher.
        client: Scores; by default one made of `$QRAE_BASE_URL` and `$QRAE_API_KEY`.
        keep: Hits that keep their text; None for half of them, rounded up.
        threshold: Hits below this score are stubs, also among the first `keep`.
        first_stage_k: Hits to ask `inner` for when that is more than `k`; the best `k` by score are returned.
        max_tokens_per_chunk: The model reads that much of each hit, from its beginning; what is returned is not cut.
        options: Further options of a scoring request, such as `{"orders": 3}`.

    """

    def __init__(
        self,
        inner: Searcher,
        client: Client | None = None,
        *,
        keep: int | None = None,
        threshold: float | None = None,
        first_stage_k: int | None = None,
        max_tokens_per_chunk: int | None = 512,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        _adapters.check(keep, threshold)
        self.inner = inner
        self.client = client if client is not None else Client()
        self.keep = keep
        self.threshold = threshold
        self.first_stage_k = first_stage_k
        self.options = _adapters.options({"max_tokens_per_chunk": max_tokens_per_chunk, **(options or {})})

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best `k` hits, the best first: copies with the new `score`, and `withheld` where the text is a stub.

        Raises:
            QraeError: The server refused, or there was no answer.

        """
        hits = list(self.inner.search(query, k=max(k, self.first_stage_k or k)))
        if not hits:
            return []
        ranked = self.client.score(query, [_chunk(hit) for hit in hits], **self.options).ranked()[:k]
        keep = self.keep if self.keep is not None else (len(ranked) + 1) // 2
        kept = {result.index for result in _adapters.keep(ranked, keep, self.threshold)}
        return [_hit(hits[r.index], r.score, withheld=r.index not in kept) for r in ranked]

    def retrieve_batch(self, queries: Sequence[str], qids: Sequence[str], k: int = 10) -> dict[str, list[Hit]]:
        """`search` for each query, under its id."""
        return {qid: self.search(query, k) for query, qid in zip(queries, qids, strict=True)}

    def get_document(self, docid: str) -> Hit | None:
        """The whole document, as `inner` has it."""
        return self.inner.get_document(docid)

    @property
    def search_type(self) -> str:
        """`inner`'s, with a mark."""
        return f"{getattr(self.inner, 'search_type', 'custom')}+QRAE"

    def search_description(self, k: int = 10) -> str:
        """Tells an agent what `search` returns."""
        return (
            f"Perform a search on a knowledge source. Returns top-{k} hits with docid, score, and snippet, the most "
            "relevant first. Hits that are probably not relevant come with their title alone; get_document returns "
            "the text of any hit."
        )

    def get_document_description(self) -> str:
        """Tells an agent what `get_document` returns."""
        return "Retrieve a full document by its docid."


def _text_key(hit: Hit) -> str:
    key = next((key for key in ("text", "snippet") if isinstance(hit.get(key), str)), None)
    if key is None:
        raise ValueError(f"the hit {hit.get('docid')!r} has neither a text nor a snippet: {', '.join(hit)}")
    return key


def _chunk(hit: Hit) -> Chunk:
    return _adapters.chunk(hit[_text_key(hit)], hit, "title")


def _hit(hit: Hit, score: float, *, withheld: bool) -> Hit:
    new = {**hit, "score": score, "withheld": withheld}
    if withheld:
        new.pop("snippet", None)
        new[_text_key(hit)] = _STUB.format(title=_title(hit))
    return new


def _title(hit: Hit) -> str:
    """The hit's own title, the one in its front matter, or its first line."""
    title = hit.get("title")
    if isinstance(title, str) and title.strip():
        return title.strip()
    text: str = hit[_text_key(hit)].lstrip()
    if text.startswith("---\n"):
        head, _, rest = text[4:].partition("\n---")
        named = re.search(r"^title:\s*(.+)$", head, re.MULTILINE)
        if named:
            return named[1].strip().strip("'\"")
        text = rest.lstrip("-\n ")
    line = next(iter(text.strip().splitlines()), "")
    return line if len(line) <= _LONGEST_TITLE else line[:_LONGEST_TITLE].rsplit(" ", 1)[0] + " …"
