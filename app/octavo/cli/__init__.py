"""The command line; each command's module is imported when the command runs, so that --help is quick."""
