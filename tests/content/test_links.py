"""Every link of the reports leads somewhere, and every claim of them can be reproduced."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from rlverify.reporting.rendering import render_all
from rlverify.reporting.report_data import ReportData
from tests.engine.reporting.records import FILES, PROJECT, data, generic
from verification.pages.of_documents import DOCUMENTS
from verification.probes.make import Make

ROOT = Path(__file__).parents[2]
REPORTS = ROOT / "reports"
WRITTEN = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "reports/**/*.md")
    for path in sorted(ROOT.glob(pattern))
}
COMMITTED = {path.name: path.read_text(encoding="utf-8") for path in sorted(REPORTS.glob("*.md"))}


def links(text: str) -> list[str]:
    """Where a page leads, without what is shown as code."""
    shown = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)\)", shown)


def anchors(text: str) -> set[str]:
    """The places of a page: those that are named, and the headings as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)">', text)
    return {*named, *(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings)}


def broken(page: str, pages: Mapping[str, str], folder: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    return [link for link in links(pages[page]) if not leads_somewhere(link, page, pages, folder)]


def leads_somewhere(link: str, page: str, pages: Mapping[str, str], folder: Path) -> bool:
    if link.startswith("https://"):
        return True
    place, _, anchor = link.partition("#")
    place, _, query = place.partition("?")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), place)) if place else page
    if query:  # lines of a file
        lines = (folder / place).read_text(encoding="utf-8").splitlines() if (folder / place).is_file() else []
        return all(1 <= int(number) <= len(lines) for number in re.findall(r"L(\d+)", anchor)) and bool(lines)
    if place in pages:
        return not anchor or anchor in anchors(pages[place])
    return not anchor and (folder / place).is_file()


@pytest.mark.parametrize("page", COMMITTED)
def test_every_link_of_a_committed_page_leads_somewhere(page: str) -> None:
    assert broken(page, COMMITTED, REPORTS) == []


@pytest.mark.parametrize("page", [name for name in WRITTEN if not name.startswith("reports/")])
def test_every_link_of_a_written_page_leads_somewhere(page: str) -> None:
    assert broken(page, WRITTEN, ROOT) == []


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(
        r"^ +- (?:\w+: )?([\w/.-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(WRITTEN)


def test_the_site_has_its_style_and_its_script_from_the_repository() -> None:
    """Without a script of that name, the theme loads one from another host."""
    names = re.findall(r"docs/[\w-]+\.(?:css|js)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [name for name in names if (ROOT / name).is_file()] == ["docs/site.css", "docs/iframe-worker.js"]


@pytest.mark.parametrize("found", [data(), generic(data())], ids=["pages of this project", "pages of every project"])
def test_the_links_of_the_full_report_data_lead_somewhere(found: ReportData, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    texts = {name: text.replace("../verification/documents/", "documents/") for name, text in render_all(found).items()}
    beside = {
        "kill-matrix.md": "# Kill matrix\n\n## What must survive",
    }  # which others write
    documents = {f"documents/{Path(path).name}": "line\n" * 500 for path in FILES.values()}
    documents["measured/effects.md"] = ""
    for name, text in {**texts, **beside, **documents}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    pages = {name: text for name, text in {**texts, **beside}.items() if name.endswith(".md")}
    assert {name: broken(name, pages, tmp_path) for name in pages} == {name: [] for name in pages}


@pytest.mark.parametrize(
    "link",
    [
        "bug-report.md#nowhere",
        "no-page.md",
        "#nowhere",
        "plots/none.svg",
        "../verification/documents/none.md?plain=1#L1",
    ],
)
def test_a_broken_link_is_found(link: str) -> None:
    pages = {"index.md": f"# Index\n\n[x]({link}) [y](#index) [z](bug-report.md#bug-01)", "bug-report.md": "## BUG-01"}
    assert broken("index.md", pages, REPORTS) == [link]


def test_every_claim_is_listed_once_and_the_command_that_reproduces_one_is_named() -> None:
    text = COMMITTED["all-claims.md"].partition("## Every claim")[2]
    assert Counter(re.findall(r"^\| \[([A-Z0-9-]+)\]", text, re.MULTILINE)) == Counter(
        claim.id for claim in PROJECT.claims if claim.kind != "null" and not claim.condition_of
    )
    assert "`.venv/bin/rlverify reproduce ID`" in COMMITTED["all-claims.md"]


def test_the_pages_are_short_enough_to_be_read() -> None:
    sizes = {name: len(text.encode()) for name, text in COMMITTED.items()}
    assert sizes["bug-report.md"] <= 40_000
    assert sum(sizes.values()) <= 350_000


@pytest.mark.parametrize("page", [name for name, *_ in DOCUMENTS])
def test_a_document_s_page_opens_with_a_summary_of_ten_lines_and_ends_with_an_appendix(page: str) -> None:
    head, _, text = COMMITTED[page].partition("\n## Executive summary\n")
    assert "\n## " not in head
    assert 1 <= len(text.partition("\n## ")[0].split("\n- ")) <= 10
    assert len(text.partition("\n## ")[0].strip().splitlines()) <= 10
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[-1] == "Appendix"


def test_bug_10_comes_first() -> None:
    assert re.findall(r"^### (BUG-\d+)", COMMITTED["bug-report.md"], re.MULTILINE)[0] == "BUG-10"


@pytest.mark.parametrize("page", COMMITTED)
def test_nothing_says_that_it_holds_in_one_of_one_runs(page: str) -> None:
    assert not re.search(r"(holds|violated) in \d|expected [^|]*; observed", COMMITTED[page])


@pytest.mark.parametrize("page", COMMITTED)
def test_every_command_shown_names_a_claim(page: str) -> None:
    known = {claim.id for claim in PROJECT.claims}
    assert set(re.findall(r"rlverify reproduce ([A-Z]+-[A-Z0-9-]+)", COMMITTED[page])) <= known


def test_the_first_screen_of_the_index_is_short_and_says_what_matters_most() -> None:
    lines = COMMITTED["index.md"].splitlines()
    screen = lines[: lines.index(next(line for line in lines if line.startswith("We run the code as it is")))]
    answers = ("**Worst bugs**", "**Most misleading statements**", "**Do first**", "**Sure**")
    assert [each for each in answers if not any(line.startswith(f"- {each}") for line in screen)] == []
    assert len(" ".join(screen).split()) < 300, "more than a minute and a half to read"
    assert [line for line in lines if line.startswith("|") and len(line) > 200] == []


def test_the_index_describes_the_small_model_as_it_is_made() -> None:
    model = Make().model(0)
    policy = model.policy
    for text in (
        f"LSTM of {policy.lstm_actor.hidden_size} and",
        f"critics of {model.policy.values.n_outputs} quantiles",
        f"{type(policy.optimizer).__name__},",
        f"warm-up of {model.vgs_warmup_steps} steps",
        f"; {model.n_envs} CartPole environments",
        f"rollouts of {model.n_steps} steps",
        f"minibatches of {model.batch_size} samples",
        f"{model.n_epochs} epochs",
    ):
        assert text in COMMITTED["index.md"]
