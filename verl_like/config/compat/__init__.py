"""Launch scripts of other projects, read so that their settings can be said in ours."""
