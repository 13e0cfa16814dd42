"""The seven nouns, units, errors, file formats and extension points. Imports nothing of Headway."""
