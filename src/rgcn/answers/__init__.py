"""From scores to answers: the best ones, what is known of them, and how probable they are. Asks a `Scorer` alone."""
