"""Make all triples: map each field of the factbook to a relation and the names of its objects."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from world import geography, goods, keywords, organizations, people
from world.countries import Gazetteer
from world.text import plain, split_list, without_notes
from world.wheel import Country

Triple = tuple[str, str, str]

# The order of a country's facts in the file.
RELATIONS = (
    "borders",
    "capital",
    "currency",
    "dependency_of",
    "independent_from",
    "exports_to",
    "imports_from",
    "member_of",
    "associated_with",
    "peacekeeping_in",
    "party_to",
    "official_language",
    "speaks",
    "religion",
    "ethnic_group",
    "government_type",
    "legal_system",
    "coast_on",
    "river",
    "lake",
    "watershed",
    "aquifer",
    "climate",
    "terrain",
    "natural_hazard",
    "environmental_issue",
    "has_resource",
    "grows",
    "industry",
    "exports_commodity",
    "imports_commodity",
)

# Objects that only one country has are dropped, except for these relations.
KEEP_SINGLE = {"capital", "currency", "official_language", "speaks", "river", "lake", "borders", "independent_from"}

_SENTENCES = {
    "climate": ("Geography", "Climate", keywords.CLIMATE, ""),
    "terrain": ("Geography", "Terrain", keywords.TERRAIN, " (terrain)"),
    "natural_hazard": ("Geography", "Natural hazards", keywords.HAZARD, ""),
    "environmental_issue": ("Environment", "Environmental issues", keywords.ENVIRONMENTAL_ISSUE, ""),
    "government_type": ("Government", "Government type", keywords.GOVERNMENT_TYPE, ""),
    "legal_system": ("Government", "Legal system", keywords.LEGAL_SYSTEM, ""),
    "religion": ("People and Society", "Religions", keywords.RELIGION, ""),
}
_GOODS = {
    "has_resource": ("Geography", "Natural resources"),
    "grows": ("Economy", "Agricultural products"),
    "industry": ("Economy", "Industries"),
    "exports_commodity": ("Economy", "Exports - commodities"),
    "imports_commodity": ("Economy", "Imports - commodities"),
}
_BASINS = {
    "watershed": "Major watersheds (area sq km)",
    "aquifer": "Major aquifers",
}


def between_countries(country: Country, gazetteer: Gazetteer) -> Iterator[Triple]:
    """Borders, trade, rule: triples whose object is a country, or a state that is no more."""
    listed = {
        "borders": country.text("Geography", "Land boundaries", "border countries"),
        "exports_to": country.text("Economy", "Exports - partners"),
        "imports_from": country.text("Economy", "Imports - partners"),
    }
    for relation, text in listed.items():
        text = without_notes(plain(text)).replace("Bahamas, The", "Bahamas")
        for item in split_list(text):
            other = gazetteer.resolve(item)
            if other and other != country.name:
                yield country.name, relation, other
                if relation == "borders":  # the factbook sometimes lists only one side
                    yield other, relation, country.name
    owner = geography.dependency_of(country.text("Government", "Dependency status"))
    if owner:
        yield country.name, "dependency_of", owner
    for ruler in geography.independence_from(country.text("Government", "Independence"), country.name):
        yield country.name, "independent_from", ruler


def society(country: Country) -> Iterator[Triple]:
    """Organizations, agreements, languages, peoples, money."""
    name = country.name
    for organization, full in organizations.memberships(
        country.text("Government", "International organization participation")
    ):
        if organization in organizations.MISSIONS:
            yield name, "peacekeeping_in", organization
        else:
            yield name, "member_of" if full else "associated_with", organization
    for agreement in organizations.agreements(
        country.text("Environment", "International environmental agreements", "party to")
    ):
        yield name, "party_to", agreement
    spoken = country.text("People and Society", "Languages", "Languages") or country.text(
        "People and Society", "Languages"
    )
    for language, official in people.languages(spoken):
        yield name, "official_language" if official else "speaks", f"{language} (language)"
    for group in people.peoples(country.text("People and Society", "Ethnic groups")):
        yield name, "ethnic_group", f"{group} (people)"
    rates = country.facts.get("Economy", {}).get("Exchange rates", {})
    money = country.text("Economy", "Exchange rates", "Currency") if "Currency" in rates else rates.get("text", "")
    money = geography.currency(str(money) or str(rates.get("note", "")))
    if name == "United States":  # the rates of all others are against it, so it has none
        money = "US dollar"
    if money:
        yield name, "currency", money


def land(country: Country) -> Iterator[Triple]:
    """Capitals, seas, rivers, lakes, basins."""
    name = country.name
    for capital in geography.capitals(country.text("Government", "Capital", "name")):
        yield name, "capital", capital
    for sea in geography.seas(country.text("Geography", "Location")):
        yield name, "coast_on", sea
    for river in geography.rivers(country.text("Geography", "Major rivers (by length in km)")):
        yield name, "river", f"{river} (river)"
    for lake in geography.lakes(country.all_parts("Geography", "Major lakes (area sq km)")):
        yield name, "lake", lake
    for relation, field in _BASINS.items():
        text = country.text("Geography", field) or country.all_parts("Geography", field)
        for basin in geography.basins(text):
            yield name, relation, f"{basin} ({relation})"


def described(country: Country) -> Iterator[Triple]:
    """Triples from fields that are sentences, by fixed vocabularies."""
    for relation, (section, field, vocabulary, suffix) in _SENTENCES.items():
        text = without_notes(plain(country.text(section, field)))
        if relation == "natural_hazard":  # the long story of each volcano mentions other hazards in passing
            head, _, story = text.partition("volcanism:")
            text = head + (" volcanism" if story else "")
        for term in keywords.terms_in(text, vocabulary):
            yield country.name, relation, term + suffix


def all_triples(countries: list[Country]) -> list[Triple]:
    """Every triple of the graph, in the order of the file."""
    gazetteer = Gazetteer([country.name for country in countries])
    triples: list[Triple] = []
    mentions: list[Triple] = []
    for country in countries:
        for source in (between_countries(country, gazetteer), society(country), land(country), described(country)):
            triples.extend(source)
        for relation, (section, field) in _GOODS.items():
            mentions.extend((country.name, relation, good) for good in goods.goods_in(country.text(section, field)))
    triples = without_singles(list(dict.fromkeys(triples)))
    triples += goods.settle(list(dict.fromkeys(mentions)))
    triples = tell_apart(triples, {country.name for country in countries})
    return sorted(set(triples), key=lambda t: (t[0], RELATIONS.index(t[1]), t[2]))


def without_singles(triples: list[Triple]) -> list[Triple]:
    """Drop triples whose object occurs nowhere else, unless its relation is worth it."""
    degree = Counter(end for s, _, o in triples for end in (s, o))
    return [t for t in triples if t[1] in KEEP_SINGLE or degree[t[2]] > 1]


def tell_apart(triples: Iterable[Triple], countries: set[str]) -> list[Triple]:
    """Give an object its kind where its name alone would mean two things.

    A country keeps its plain name; Kingston, a capital of two countries, gets the name of one of them.
    """
    triples = list(triples)
    kinds: dict[str, set[str]] = defaultdict(set)
    owners: dict[str, set[str]] = defaultdict(set)
    for subject, relation, name in triples:
        kinds[name].add(_KIND.get(relation, relation))
        if relation == "capital":
            owners[name].add(subject)
    result = []
    for subject, relation, name in triples:
        kind = _KIND.get(relation, relation)
        if kind != "country" and (name in countries or len(kinds[name]) > 1):
            name = f"{name} ({kind})"
        elif relation == "capital" and len(owners[name]) > 1 and name != "Episkopi Cantonment":
            name = f"{name} (city in {subject})"
        result.append((subject, relation, name))
    return result


_KIND = {
    "borders": "country",
    "dependency_of": "country",
    "independent_from": "country",
    "exports_to": "country",
    "imports_from": "country",
    "capital": "city",
    "member_of": "organization",
    "associated_with": "organization",
    "peacekeeping_in": "mission",
    "party_to": "treaty",
    "official_language": "language",
    "speaks": "language",
    "ethnic_group": "people",
    "coast_on": "water",
    "lake": "water",
    "natural_hazard": "danger",
    "environmental_issue": "danger",
    **dict.fromkeys(_GOODS, "good"),
}
