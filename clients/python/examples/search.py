"""Wraps a searcher for an agent: the best hits come with text, the others as a title that can be fetched.

Run a server (`qrae serve`), set QRAE_BASE_URL and QRAE_API_KEY where they are not the defaults, then this file.
"""

from _articles import ARTICLES, QUESTION, search

from qrae.browsecomp import Hit, QraeSearcher


class Articles:
    """A searcher as BrowseComp-Plus has them."""

    search_type = "words"

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The best `k` articles."""
        return search(query, k)

    def get_document(self, docid: str) -> Hit | None:
        """One article."""
        return {"docid": docid, "text": ARTICLES[int(docid)][1]}


searcher = QraeSearcher(Articles(), keep=2)
for hit in searcher.search(QUESTION, k=4):
    print(f"{hit['docid']}  {hit['score']:.4f}  {hit['text']}")
