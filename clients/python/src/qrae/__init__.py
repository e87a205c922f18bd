"""Client for qrae: scores retrieved chunks by what a question makes the agent's own model attend to.

`Client` and `AsyncClient` speak the server's native API. For chats use any OpenAI client. Adapters live in modules of
their own, which import their framework: `qrae.langchain`, `qrae.llama_index`, and `qrae.browsecomp`, which needs none.
"""

from qrae._client import AsyncClient, Client
from qrae._errors import QraeError
from qrae._gate import Admission, Gated, GatedChunk, GateOptions, KeptSpan
from qrae._types import (
    Chunk,
    ChunkInput,
    ChunkScore,
    Flags,
    HeadScore,
    HeadSet,
    ManyScores,
    Method,
    Scores,
    Timings,
    TokenResponse,
    Usage,
)

__all__ = [
    "Admission",
    "AsyncClient",
    "Chunk",
    "ChunkInput",
    "ChunkScore",
    "Client",
    "Flags",
    "GateOptions",
    "Gated",
    "GatedChunk",
    "HeadScore",
    "HeadSet",
    "KeptSpan",
    "ManyScores",
    "Method",
    "QraeError",
    "Scores",
    "Timings",
    "TokenResponse",
    "Usage",
]
