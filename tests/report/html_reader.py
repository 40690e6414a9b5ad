"""Reads a page as a browser would take it apart, and says what is wrong with it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import pairwise

EMPTY = {"meta", "link", "br", "hr", "img", "input"}
RUNS = {"script", "iframe", "object", "embed", "form", "base", "img", "audio", "video", "source"}
ADDRESSES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background", "formaction"}


class Page(HTMLParser):
    """Tags with their attributes, text by tag, and problems found on the way."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.problems: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        if self._open:
            self.problems.append(f"left open: {self._open}")
        self._check()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        if len(set(names)) < len(names):
            self.problems.append(f"{tag}: an attribute twice: {names}")
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.problems.append(f"closed out of order: {tag}")

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, *without: str) -> str:
        return " ".join(" ".join(data for tag, data in self.texts if tag not in ("style", *without)).split())

    def _check(self) -> None:
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        self.problems += [f"id twice: {i}" for i in set(ids) if ids.count(i) > 1]
        for tag, attributes in self.tags:
            if tag in RUNS:
                self.problems.append(f"<{tag}>")
            for name, value in attributes.items():
                self._attribute(tag, name, value or "", set(ids))
        self.problems += [f"style: {address}" for address in re.findall(r"url\((?!#)[^)]*\)|@import[^;]*", self._style())]
        levels = [int(tag[1]) for tag, _ in self.tags if re.fullmatch("h[1-6]", tag)]
        if levels.count(1) != 1 or levels[0] != 1 or any(b - a > 1 for a, b in pairwise(levels)):
            self.problems.append(f"headings out of order: {levels}")
        named = [a for a in self.all("svg") if a.get("aria-hidden") != "true"]
        self.problems += ["a figure without a text for it" for a in named if a.get("role") != "img" or not a.get("aria-label")]

    def _attribute(self, tag: str, name: str, value: str, ids: set) -> None:
        if name.startswith("on"):
            self.problems.append(f"<{tag} {name}>")
        if name in ADDRESSES:
            if value.startswith("#"):
                if value[1:] not in ids:
                    self.problems.append(f"<{tag} {name}={value}>: leads nowhere")
            elif not value.startswith("data:"):
                self.problems.append(f"<{tag} {name}={value}>: an address")
        if name == "style" and re.search(r"url\((?!#)|expression|@import", value):
            self.problems.append(f"<{tag} style={value}>")
        for target in re.findall(r"url\(#([^)]*)\)", value):
            if target not in ids:
                self.problems.append(f"<{tag} {name}={value}>: leads nowhere")

    def _style(self) -> str:
        return "".join(data for tag, data in self.texts if tag == "style")
