"""The nouns: frozen values with their units in their names. No behaviour beyond reading themselves."""
