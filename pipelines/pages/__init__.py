"""Pages for people: a report of a sketch, a page to ask it, a plan. Released numbers alone; no network."""
