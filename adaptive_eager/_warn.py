"""One sentence to the user, which never turns into an exception."""

import sys
import warnings

from ._errors import AdaptiveEagerWarning


def warn(sentence: str) -> None:
    try:
        warnings.warn_explicit(sentence, AdaptiveEagerWarning, "adaptive_eager", 0)
    except AdaptiveEagerWarning:  # under -W error, a warning must still not break `import torch`
        print(f"adaptive_eager: {sentence}", file=sys.stderr)
