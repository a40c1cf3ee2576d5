"""Logs on stderr, chosen by ADAPTIVE_EAGER_LOGS as TORCH_LOGS does: `name` for info, `+name` for everything."""

import logging

COMPONENTS = {
    "load": "how the device was found and loaded, or why it was not",
    "compile": "which loops were compiled, in what time, or why they were not",
}


def parse_logs(text: str) -> dict[str, int]:
    levels = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name = item.lstrip("+")
        if name not in COMPONENTS:
            raise ValueError(item)
        levels[name] = logging.DEBUG if item.startswith("+") else logging.INFO
    return levels


def logger(component: str) -> logging.Logger:
    return logging.getLogger(f"adaptive_eager.{component}")


def enable(levels: dict[str, int]) -> None:
    for name, level in levels.items():
        log = logger(name)
        log.setLevel(level)
        if not log.handlers:
            handler = logging.StreamHandler()
            handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
            log.addHandler(handler)
            log.propagate = False
