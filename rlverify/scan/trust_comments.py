"""Comments that accept a call: ``# rlverify: trusted REASON`` on its first or last line."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Mapping
from typing import Final

_COMMENT: Final = re.compile(r"#\s*rlverify:\s*trusted\b\s*:?\s*(?P<reason>[^#]*)")


def trust_comments(source: str) -> Mapping[int, str]:
    """The reason that each comment gives, by its line; empty for one without a reason.

    Texts that look like comments do not count.
    """
    reasons: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if found:
                reasons[token.start[0]] = found["reason"].strip()
    except (tokenize.TokenError, SyntaxError):  # the parser reports the file
        return {}
    return reasons
