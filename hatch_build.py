"""README as PyPI shows it, where links and pictures of this repository lead nowhere.

They are looked up at `Source` of project.urls, in the tag of the version. As long as there is no `Source`, their text
stands alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https:|#)([^)]+)\)")


class ReadmeForPypi(MetadataHookInterface):
    """Fill in `readme` of the project's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set it to README.md with absolute links."""
        source = metadata.get("urls", {}).get("Source")

        def absolute(link: re.Match[str]) -> str:
            picture, text, path = link.groups()
            if source is None:
                return text
            return f"{picture}[{text}]({source}/{'raw' if picture else 'blob'}/v{metadata['version']}/{path})"

        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _LINK.sub(absolute, text)}
