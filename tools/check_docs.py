"""Check the pages: run the examples in them, and follow each link to a file.

Exits with 1 and one line for each broken link or failed example.
"""

import doctest
import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """Every page of the project: Markdown files at the root and under docs/."""
    return [*sorted(Path().glob("*.md")), *sorted(Path("docs").rglob("*.md"))]


def broken_links(page: Path) -> list[str]:
    """The links of a page to files that do not exist; links to the web are not followed."""
    targets = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8"))]
    local = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    return [target for target in local if not (page.parent / target).exists()]


def main() -> None:
    """Check every page and say what is wrong."""
    failures = 0
    for page in pages():
        for target in broken_links(page):
            sys.stderr.write(f"{page}: a link leads to {target}, which does not exist\n")
            failures += 1
        failures += doctest.testfile(str(page.resolve()), module_relative=False).failed
    sys.stderr.write(f"{len(pages())} pages, {failures} failures\n")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
