"""An error of the tool's own: one sentence on stderr, exit status 1."""


class ToolError(Exception):
    pass
