"""The paths of the HTTP API, one module per resource."""
