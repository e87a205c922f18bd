"""A LlamaIndex node postprocessor. Needs the extra `qrae[llama-index]`. Tests: `tests/test_adapters.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from qrae import _adapters
from qrae._client import DEFAULT_TIMEOUT, AsyncClient, Client
from qrae._types import Chunk, Scores

try:
    from llama_index.core.bridge.pydantic import Field, PrivateAttr, SecretStr, model_validator
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle
except ImportError as e:
    raise ImportError("qrae.llama_index needs llama-index-core: pip install 'qrae[llama-index]'") from e


class QraePostprocessor(BaseNodePostprocessor):
    """Orders nodes by their score for the query, and keeps the best.

    Each kept node comes in a new `NodeWithScore`; the node itself, its metadata, and the list passed in stay as they
    are.
    """

    base_url: str | None = Field(
        default=None, description="The server; else $QRAE_BASE_URL, else where qrae serve listens."
    )
    api_key: SecretStr | None = Field(default=None, exclude=True, description="A key; else $QRAE_API_KEY.")
    model: str | None = Field(default=None, description="Refused by a server that serves another one.")
    timeout: float = Field(default=DEFAULT_TIMEOUT, description="Seconds for one try.")
    max_retries: int = Field(default=3, description="Tries after the first, on overload.")
    top_n: int | None = Field(default=None, description="Keeps that many at most; None for all.")
    threshold: float | None = Field(
        default=None, description="Keeps those with at least this score, which depends on the other nodes."
    )
    title_key: str | None = Field(
        default="title", description="Where the metadata has a title for the model to read; None for nowhere."
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description='Further options of a request, such as {"max_tokens_per_chunk": 512}.'
    )
    client: Client | None = Field(default=None, exclude=True, description="In place of one made of the above.")
    async_client: AsyncClient | None = Field(default=None, exclude=True, description="The same for asyncio.")

    _made: Client | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _adapters.check(self.top_n, self.threshold)
        return self

    @classmethod
    def class_name(cls) -> str:
        """The name in serialised pipelines."""
        return "QraePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        scores = self._sync().score(_query(query_bundle), self._chunks(nodes), **_adapters.options(self.options))
        return self._kept(nodes, scores)

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        query, chunks, options = _query(query_bundle), self._chunks(nodes), _adapters.options(self.options)
        if self.async_client is not None:
            return self._kept(nodes, await self.async_client.score(query, chunks, **options))
        # one for each call: connections belong to the event loop that opened them
        async with AsyncClient(**self._settings()) as client:
            return self._kept(nodes, await client.score(query, chunks, **options))

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

    def _chunks(self, nodes: Sequence[NodeWithScore]) -> list[Chunk]:
        def chunk(node: BaseNode) -> Chunk:
            text = node.get_content(metadata_mode=MetadataMode.NONE)
            return _adapters.chunk(text, node.metadata, self.title_key)

        return [chunk(node.node) for node in nodes]

    def _kept(self, nodes: Sequence[NodeWithScore], scores: Scores) -> list[NodeWithScore]:
        kept = _adapters.keep(scores.ranked(), self.top_n, self.threshold)
        return [NodeWithScore(node=nodes[result.index].node, score=result.score) for result in kept]


def _query(bundle: QueryBundle | None) -> str:
    if bundle is None:
        raise ValueError("nodes are scored for a query: pass query_bundle or query_str")
    return bundle.query_str
