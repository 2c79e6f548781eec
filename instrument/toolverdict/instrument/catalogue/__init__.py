"""What the tools are: their definitions, pinned and compared.

:mod:`definitions` (tools, hashes, the lock file) ← :mod:`sources` (Python, MCP, OpenAI, Anthropic);
:mod:`diff` compares two catalogues, :mod:`schema_changes` two schemas.
"""
