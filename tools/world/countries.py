"""Countries: their names, the regions that are their classes, and every other way the factbook writes them."""

from __future__ import annotations

import re

from world.text import plain, without_parentheses

REGIONS = {
    "africa": "Africa",
    "antarctica": "Antarctica",
    "australia-oceania": "Australia and Oceania",
    "central-america-n-caribbean": "Central America and the Caribbean",
    "central-asia": "Central Asia",
    "east-n-southeast-asia": "East and Southeast Asia",
    "europe": "Europe",
    "middle-east": "Middle East",
    "north-america": "North America",
    "south-america": "South America",
    "south-asia": "South Asia",
}

# The European Union is an organization here; it has no neighbors that its members do not have.
NOT_COUNTRIES = {"ee"}

# Where the "conventional short form" is missing, is a sentence, or carries an article.
NAMES = {
    "ae": "United Arab Emirates",
    "bf": "Bahamas",
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "ck": "Cocos Islands",
    "ct": "Central African Republic",
    "dr": "Dominican Republic",
    "fk": "Falkland Islands",
    "fm": "Micronesia",
    "ga": "Gambia",
    "gz": "Gaza Strip",
    "io": "British Indian Ocean Territory",
    "iv": "Ivory Coast",
    "sh": "Saint Helena",
    "sv": "Svalbard",
    "um": "United States Pacific Island Wildlife Refuges",
    "vq": "United States Virgin Islands",
    "vt": "Holy See",
}

ALIASES = {
    "Antigua & Barbuda": "Antigua and Barbuda",
    "BVI": "British Virgin Islands",
    "Bahamas, The": "Bahamas",
    "Bosnia": "Bosnia and Herzegovina",
    "Bosnia & Herzegovina": "Bosnia and Herzegovina",
    "British": "United Kingdom",
    "Brunei Darussalam": "Brunei",
    "Cape Verde": "Cabo Verde",
    "CAR": "Central African Republic",
    "Central African Rep": "Central African Republic",
    "Congo": "Republic of the Congo",
    "Congo (Brazzaville)": "Republic of the Congo",
    "Congo (Kinshasa)": "Democratic Republic of the Congo",
    "Congo, Democratic Republic of the": "Democratic Republic of the Congo",
    "Congo, Republic of the": "Republic of the Congo",
    "Congo-Brazzaville": "Republic of the Congo",
    "Congo-Kinshasa": "Democratic Republic of the Congo",
    "Cote d'Ivoire": "Ivory Coast",
    "Czech Republic": "Czechia",
    "DROC": "Democratic Republic of the Congo",
    "DR Congo": "Democratic Republic of the Congo",
    "DRC": "Democratic Republic of the Congo",
    "Democratic Republic of Congo": "Democratic Republic of the Congo",
    "Dem. Rep. of the Congo": "Democratic Republic of the Congo",
    "East Timor": "Timor-Leste",
    "England": "United Kingdom",
    "Gambia, The": "Gambia",
    "Great Britain": "United Kingdom",
    "Holland": "Netherlands",
    "Korea, North": "North Korea",
    "Korea, South": "South Korea",
    "Korea": "South Korea",
    "Macao": "Macau",
    "Macedonia": "North Macedonia",
    "Malaysian Federation": "Malaysia",
    "Myanmar": "Burma",
    "N. Korea": "North Korea",
    "NZ": "New Zealand",
    "People's Republic of China": "China",
    "Republic of Congo": "Republic of the Congo",
    "Republic of Korea": "South Korea",
    "S. Africa": "South Africa",
    "S. Korea": "South Korea",
    "Sao Tome & Principe": "Sao Tome and Principe",
    "Swaziland": "Eswatini",
    "Trinidad & Tobago": "Trinidad and Tobago",
    "Turkiye": "Turkey",
    "Turkey (Turkiye)": "Turkey",
    "Turks & Caicos Islands": "Turks and Caicos Islands",
    "UAE": "United Arab Emirates",
    "UK": "United Kingdom",
    "US": "United States",
    "US Virgin Islands": "United States Virgin Islands",
    "USA": "United States",
    "U.S.": "United States",
    "Vatican City": "Holy See",
    "Virgin Islands": "United States Virgin Islands",
    "Virgin Islands, UK": "British Virgin Islands",
    "Wallis & Futuna": "Wallis and Futuna",
}


def country_name(code: str, short_form: str) -> str:
    """A readable common name.

    >>> country_name("sz", "Switzerland"), country_name("iv", "C&ocirc;te d'Ivoire")
    ('Switzerland', 'Ivory Coast')
    """
    return NAMES.get(code) or without_parentheses(plain(short_form))


class Gazetteer:
    """Resolves the many spellings of a country to its one name.

    >>> Gazetteer(["South Korea", "Saint Lucia", "Spain"]).resolve("S. Korea 6%")
    'South Korea'
    >>> Gazetteer(["Saint Lucia"]).resolve("St. Lucia")
    'Saint Lucia'
    >>> Gazetteer(["Spain"]).resolve("Atlantis") is None
    True
    """

    def __init__(self, names: list[str]) -> None:
        self._names = {name.lower(): name for name in names}
        self._names.update({alias.lower(): name for alias, name in ALIASES.items() if name in names})

    def resolve(self, text: str) -> str | None:
        text = re.sub(r"\s*\b[\d.,]+\s*(?:%|km\b).*", "", plain(text)).strip(" .,;")
        text = re.sub(r"^(?:almost entirely|mostly|and|the)\s+", "", text, flags=re.IGNORECASE)
        text = re.sub(r"^St\.? ", "Saint ", text).replace(" Is.", " Islands")
        for candidate in (text, without_parentheses(text), text.replace(" & ", " and ")):
            name = self._names.get(candidate.lower())
            if name:
                return name
        return None
