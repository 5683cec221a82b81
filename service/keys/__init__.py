"""Authentication and authorisation: API keys, sign-in links and browser sessions."""
