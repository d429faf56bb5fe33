"""The instruments that come with Megalens, each a slice: whole in its own folder, found as those of other packages are."""
