"""Short names of IRIs: `rdf:type` for what a prefix and a local name make together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

# What people write without declaring it: prefixes and their namespaces.
_WELL_KNOWN = """
    rdf http://www.w3.org/1999/02/22-rdf-syntax-ns#    rdfs http://www.w3.org/2000/01/rdf-schema#
    owl http://www.w3.org/2002/07/owl#    xsd http://www.w3.org/2001/XMLSchema#    prov http://www.w3.org/ns/prov#
    skos http://www.w3.org/2004/02/skos/core#    foaf http://xmlns.com/foaf/0.1/    sh http://www.w3.org/ns/shacl#
    dc http://purl.org/dc/elements/1.1/    dcterms http://purl.org/dc/terms/    dct http://purl.org/dc/terms/
    dcat http://www.w3.org/ns/dcat#    schema http://schema.org/    schema https://schema.org/
    geo http://www.w3.org/2003/01/geo/wgs84_pos#    vcard http://www.w3.org/2006/vcard/ns#
    org http://www.w3.org/ns/org#    time http://www.w3.org/2006/time#    obo http://purl.obolibrary.org/obo/
    sosa http://www.w3.org/ns/sosa/    ssn http://www.w3.org/ns/ssn/    bot https://w3id.org/bot#
    brick https://brickschema.org/schema/Brick#    saref https://saref.etsi.org/core/    unit http://qudt.org/vocab/unit/
    dbo http://dbpedia.org/ontology/    dbr http://dbpedia.org/resource/    dbp http://dbpedia.org/property/
    wd http://www.wikidata.org/entity/    wdt http://www.wikidata.org/prop/direct/
"""
WELL_KNOWN = list(zip(_WELL_KNOWN.split()[::2], _WELL_KNOWN.split()[1::2], strict=True))


def expanded(text: str, declared: Mapping[str, list[str]]) -> Iterator[str]:
    """The IRIs that a short name stands for; `declared`: {prefix: its namespaces}, which come before well-known ones.

    >>> list(expanded("brick:hasQuantity", {})), list(expanded("ex:a", {"ex": ["http://x.org/"]}))
    (['https://brickschema.org/schema/Brick#hasQuantity'], ['http://x.org/a'])
    """
    prefix, colon, rest = text.partition(":")
    if colon and not rest.startswith("//"):
        spaces = declared.get(prefix) or [space for known, space in WELL_KNOWN if known == prefix.lower()]
        yield from (space + rest for space in spaces)
