"""The documents say what is there: every setting with its default, every link, every path of the API that they show."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from django.urls import resolve

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").glob("*.md")])


def documented_settings() -> dict[str, str]:
    """Name → default, as the table of docs/settings.md has them."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.*?) \|", (ROOT / "docs/settings.md").read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a setting is in the table twice"
    return dict(rows)


def read_settings() -> dict[str, object]:
    """Name → default, for each ``env.kind("NAME", ...)`` in settings.py; ``...`` where the default is no constant."""
    found: dict[str, object] = {}
    for node in ast.walk(ast.parse((ROOT / "sandboxhub/settings.py").read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="env")), args=[ast.Constant(value=str(name)), *rest]):
                given = rest[:1] + [keyword.value for keyword in node.keywords if keyword.arg == "default"]
                try:
                    found[name] = ast.literal_eval(given[0])
                except (ValueError, IndexError):
                    found[name] = ...
    return found


def shown(default: object) -> str:
    """A default as the table writes it."""
    if isinstance(default, bool):
        return "`on`" if default else "`off`"
    if isinstance(default, list):
        return f"`{','.join(default)}`" if default else "empty"
    return f"`{default}`"


def test_the_table_has_every_setting_and_no_other() -> None:
    assert set(documented_settings()) == set(read_settings())


@pytest.mark.parametrize("name", sorted(name for name, default in read_settings().items() if default is not ... and default != ""))
def test_the_table_has_the_true_default(name: str) -> None:
    assert documented_settings()[name] == shown(read_settings()[name])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_addresses_of_examples_exist(document: Path) -> None:
    for path in re.findall(r"(?:\$HUB|localhost:8000|127\.0\.0\.1:8000)(/[^\s'\"?`]*)", document.read_text()):
        resolve(path.replace("$ID", f"m_{24 * '0'}"))
