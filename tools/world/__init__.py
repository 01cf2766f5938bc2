"""How the embedded graph `world` is made: the factbook's prose in, clean triples out."""
