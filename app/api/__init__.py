"""THE FRONT ROOM: HTTP, and nothing that decides anything about ranking or learning."""
