"""Reranks LlamaIndex nodes. Needs `pip install 'qrae[llama-index]'`.

Run a server (`qrae serve`), set QRAE_BASE_URL and QRAE_API_KEY where they are not the defaults, then this file.
"""

from _articles import ARTICLES, QUESTION
from llama_index.core.schema import NodeWithScore, TextNode

from qrae.llama_index import QraePostprocessor

nodes = [NodeWithScore(node=TextNode(text=text, metadata={"title": title})) for title, text in ARTICLES]

# with an index: index.as_query_engine(similarity_top_k=20, node_postprocessors=[postprocessor])
postprocessor = QraePostprocessor(top_n=2)
for node in postprocessor.postprocess_nodes(nodes, query_str=QUESTION):
    print(f"{node.score:.4f}  {node.node.metadata['title']}: {node.text}")
