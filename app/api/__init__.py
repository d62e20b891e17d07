"""HTTP: decode requests, call the packages below, encode answers. No decisions are made here."""
