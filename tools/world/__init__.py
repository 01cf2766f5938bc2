"""Make the embedded graph `world`: convert the prose of the factbook to triples."""
