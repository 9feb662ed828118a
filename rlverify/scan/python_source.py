"""Finds the calls in Python source that trust their input; the source is parsed and never imported."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Final

from rlverify.pickles.bounded_reading import NotScannedError
from rlverify.scan.findings import RULES, ScanFinding
from rlverify.scan.loading_calls import WRITING_FUNCTIONS, Aliases, loading_function

_MISSING_REASON: Final = "the comment `# rlverify: trusted` needs a reason to count: `# rlverify: trusted REASON`; or "


def findings_of_source(content: bytes, path: str) -> Iterator[ScanFinding]:
    """Yield the calls that trust their input, in the order of their lines."""
    source = _decoded(content)
    nodes = list(ast.walk(_parsed(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    aliases, reasons = Aliases(nodes), trust_comments(source)
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        yield from _findings_of_call(call, aliases, reasons, path)


def _decoded(content: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        return content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise NotScannedError("unreadable-file", f"is not text: {str(error)[:120]}") from error


def _parsed(source: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the source, which is another's
            return ast.parse(source)
    except SyntaxError as error:
        raise NotScannedError("unreadable-file", f"is not Python 3: {error.msg}, line {error.lineno}") from error
    except MemoryError as error:
        raise NotScannedError(
            "scan-limit", "is too large or nested too deeply to be parsed; it was not scanned"
        ) from error
    except (ValueError, RecursionError) as error:
        raise NotScannedError("unreadable-file", f"cannot be parsed: {str(error)[:120]}") from error


def _findings_of_call(call: ast.Call, aliases: Aliases, reasons: Mapping[int, str], path: str) -> Iterator[ScanFinding]:
    for name in aliases.meanings_of(call.func):
        function = loading_function(name)
        judgement = None if function is None else function.judge(call, name.lstrip("."))
        if function is None or judgement is None or _loads_what_was_just_written(call, aliases):
            continue
        comments = [reasons[line] for line in {call.lineno, call.end_lineno or call.lineno} if line in reasons]
        if not any(comments):
            advice = _MISSING_REASON * bool(comments) + RULES[function.rule].remedy
            yield ScanFinding(path, function.rule, *judgement, advice, line=call.lineno)
        return


def _loads_what_was_just_written(call: ast.Call, aliases: Aliases) -> bool:
    """Say whether the argument is the result of ``dumps``, as in a deep copy."""
    if not call.args or not isinstance(call.args[0], ast.Call):
        return False
    return not WRITING_FUNCTIONS.isdisjoint(aliases.meanings_of(call.args[0].func))


_COMMENT: Final = re.compile(r"#\s*rlverify:\s*trusted\b\s*:?\s*(?P<reason>[^#]*)")


def trust_comments(source: str) -> Mapping[int, str]:
    """Return the reason that each comment gives, by its line; empty for one without a reason."""
    reasons: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            if found:
                reasons[token.start[0]] = found["reason"].strip()
    except (tokenize.TokenError, SyntaxError):  # the parser reports the file
        return {}
    return reasons
