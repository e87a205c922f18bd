"""A LangChain document compressor. Needs the extra `qrae[langchain]`. Tests: `tests/test_adapters.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from qrae import _adapters
from qrae._client import DEFAULT_TIMEOUT, AsyncClient, Client
from qrae._types import Chunk, Scores

try:
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, model_validator
except ImportError as e:
    raise ImportError("qrae.langchain needs langchain-core: pip install 'qrae[langchain]'") from e


class QraeCompressor(BaseDocumentCompressor):
    """Orders documents by their score for the query, and keeps the best.

    The score is in `metadata["relevance_score"]`. Text, id and the other metadata stay as they are, and the documents
    that were passed in are not changed. Use it in a `ContextualCompressionRetriever`, or call it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    base_url: str | None = None
    """The server; else `$QRAE_BASE_URL`, else the address `qrae serve` listens on."""
    api_key: SecretStr | None = None
    """One of the server's keys; else `$QRAE_API_KEY`."""
    model: str | None = None
    timeout: float = DEFAULT_TIMEOUT
    max_retries: int = 3
    top_n: int | None = None
    """Keeps that many at most; None for all."""
    threshold: float | None = None
    """Keeps those with at least this score. Scores depend on what else was retrieved: prefer `top_n`."""
    title_key: str | None = "title"
    """Where the metadata has a title, which the model then reads before the text; None for nowhere."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further options of a request, such as `{"max_tokens_per_chunk": 512}`."""
    client: Client | None = None
    """In place of one made from the fields above."""
    async_client: AsyncClient | None = None

    _made: Client | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _adapters.check(self.top_n, self.threshold)
        return self

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002 - the interface's
    ) -> list[Document]:
        """Scores the documents and keeps the best, the best first.

        Raises:
            QraeError: The server refused, or there was no answer.

        """
        if not documents:
            return []
        scores = self._sync().score(query, self._chunks(documents), **_adapters.options(self.options))
        return self._kept(documents, scores)

    async def acompress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Callbacks | None = None,  # noqa: ARG002 - the interface's
    ) -> list[Document]:
        """As `compress_documents`."""
        if not documents:
            return []
        chunks, options = self._chunks(documents), _adapters.options(self.options)
        if self.async_client is not None:
            return self._kept(documents, await self.async_client.score(query, chunks, **options))
        # one for each call: connections belong to the event loop that opened them
        async with AsyncClient(**self._settings()) as client:
            return self._kept(documents, await client.score(query, chunks, **options))

    def _sync(self) -> Client:
        if self.client is not None:
            return self.client
        if self._made is None:
            self._made = Client(**self._settings())
        return self._made

    def _settings(self) -> dict[str, Any]:
        key = self.api_key.get_secret_value() if self.api_key is not None else None
        return {
            "base_url": self.base_url,
            "api_key": key,
            "model": self.model,
            "timeout": self.timeout,
            "max_retries": self.max_retries,
        }

    def _chunks(self, documents: Sequence[Document]) -> list[Chunk]:
        return [_adapters.chunk(d.page_content, d.metadata, self.title_key) for d in documents]

    def _kept(self, documents: Sequence[Document], scores: Scores) -> list[Document]:
        kept = []
        for result in _adapters.keep(scores.ranked(), self.top_n, self.threshold):
            document = documents[result.index]
            metadata = {**document.metadata, "relevance_score": result.score}
            kept.append(document.model_copy(update={"metadata": metadata}))
        return kept
