"""Reranks LangChain documents. Needs `pip install 'qrae[langchain]'`.

Run a server (`qrae serve`), set QRAE_BASE_URL and QRAE_API_KEY where they are not the defaults, then this file.
"""

from _articles import ARTICLES, QUESTION
from langchain_core.documents import Document

from qrae.langchain import QraeCompressor

documents = [Document(page_content=text, metadata={"title": title}) for title, text in ARTICLES]

# with a retriever: ContextualCompressionRetriever(base_compressor=compressor, base_retriever=retriever)
compressor = QraeCompressor(top_n=2)
for document in compressor.compress_documents(documents, QUESTION):
    print(f"{document.metadata['relevance_score']:.4f}  {document.metadata['title']}: {document.page_content}")
